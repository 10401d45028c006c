package store

import (
	"errors"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPoolsOfAStore(t *testing.T) {
	class := func(name string) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Name = name }
	}
	weight := func(n int32) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Weight = &n }
	}
	none := func(np *karpv1.NodePool) { np.Spec.Weight = nil }
	w := newWorld(t, newFakeAPI(
		testPool("b", none), testPool("a", none), testPool("heavy", weight(100)), testPool("light", weight(1)),
		testPool("classless", none, class("nowhere")), testPool("unresolved", none, class("slow")),
		testPool("leaving", none, class("leaving")), testPool("invalid", none, func(np *karpv1.NodePool) { np.Spec.Limits["cpu"] = resource.MustParse("-1") }),
		testClass("default"), testClass("slow"),
		testClass("leaving", func(nc *ec2nc.EC2NodeClass) {
			nc.DeletionTimestamp, nc.Finalizers = &metav1.Time{Time: start}, []string{"karpenter.k8s.aws/termination"}
		}),
	)).ready()
	types := []*capacity.InstanceType{{Name: "m5.large"}}
	got := map[string]string{}
	var order []string
	for _, p := range w.Pools(func(class string) ([]*capacity.InstanceType, error) {
		if class == "slow" {
			return nil, errors.New("EC2NodeClass slow: spec.subnetSelectorTerms matches nothing")
		}
		return types, nil
	}) {
		order = append(order, p.Name)
		got[p.Name] = p.Unready
		if (p.Unready == "") != (len(p.Types) == 1) {
			t.Errorf("pool %s: unready %q with %d types", p.Name, p.Unready, len(p.Types))
		}
	}
	if diff := cmp.Diff([]string{"heavy", "light", "a", "b", "classless", "invalid", "leaving", "unresolved"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"heavy": "", "light": "", "a": "", "b": "",
		"classless":  "NodePool classless: spec.template.spec.nodeClassRef.name: there is no EC2NodeClass nowhere",
		"leaving":    "EC2NodeClass leaving is being deleted",
		"unresolved": "EC2NodeClass slow: spec.subnetSelectorTerms matches nothing",
		"invalid":    `NodePool invalid: spec.limits[cpu]: Invalid value: "-1": must not be negative`,
	}, got); diff != "" {
		t.Errorf("unready (-want +got):\n%s", diff)
	}
}
