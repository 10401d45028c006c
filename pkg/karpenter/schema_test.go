package karpenter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// acceptable returns why an API server would refuse a part of the object ("" is all of it), or nil. Kinds without a definition pass.
func acceptable(o any, part string) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	errs := shipped.Admit(u)
	if own, err := legacyDefinitions(); err != nil {
		return err
	} else if d := own[u.GetKind()]; d != nil {
		errs = d.admit(u, nil)
	}
	errs = slices.DeleteFunc(errs, func(err *field.Error) bool { return !strings.HasPrefix(err.Field, part) })
	if len(errs) > 0 {
		return fmt.Errorf("the API server refuses %s %s: %w", u.GetKind(), u.GetName(), errs.ToAggregate())
	}
	return nil
}

func TestAdmit(t *testing.T) {
	u := fromYAML(t, `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  weight: 101
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: topology.kubernetes.io/zone, operator: In, values: []}]
`)
	var got []string
	for _, err := range shipped.Admit(u) {
		got = append(got, err.Field)
	}
	if diff := cmp.Diff([]string{"spec.weight", "spec.template.spec.requirements"}, got); diff != "" {
		t.Errorf("fields refused (-want +got):\n%s", diff)
	}
	if after, _, _ := unstructured.NestedString(u.Object, "spec", "template", "spec", "expireAfter"); after != "720h" {
		t.Errorf("expireAfter is %q, want the definition's default", after)
	}
	if errs := shipped.Admit(fromYAML(t, "{apiVersion: example.com/v1, kind: Other, metadata: {name: x}}")); len(errs) > 0 {
		t.Errorf("a kind that is not ours was refused: %v", errs)
	}
}
