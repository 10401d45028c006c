package explain

import (
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// karpenterProfile is a profile's settings about pools.
type karpenterProfile = karpenter.Profile

// classOf returns the node class of a pool; nil: there is none.
func (c *Cluster) classOf(np *karpv1.NodePool) status.Object {
	ref := np.Spec.Template.Spec.NodeClassRef
	if ref == nil {
		return nil
	}
	for _, o := range manifest.All[status.Object](c.Set) {
		if o.GetName() == ref.Name && kindOf(o) == ref.Kind {
			return o
		}
	}
	return nil
}

func conditionsOf(o status.Object) []status.Condition {
	if o == nil {
		return nil
	}
	return o.GetConditions()
}

func kindOf(o status.Object) string {
	if kind := o.GetObjectKind().GroupVersionKind().Kind; kind != "" {
		return kind
	}
	if _, ok := o.(*karpv1.NodePool); ok {
		return "NodePool"
	}
	return "node class"
}

func conditionOf(all []status.Condition, name string) *status.Condition {
	if i := slices.IndexFunc(all, func(c status.Condition) bool { return c.Type == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// saysMore reports whether a condition's message is more than its reason.
func saysMore(c *status.Condition) bool {
	return c.Message != "" && c.Message != c.Reason && !strings.Contains(c.Message, "awaiting reconciliation")
}
