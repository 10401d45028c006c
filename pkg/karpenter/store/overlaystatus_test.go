package store

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Conditions follow the types that overlays apply to, even when nothing is planned.
func TestOverlayConditions(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), readyClass("default"),
		testOverlay("a", nil, price("1")), testOverlay("b", []string{"node.kubernetes.io/instance-type In m5.large"}, price("2")), testOverlay("wrong", []string{"team Near a"}, price("1"))))
	all := twoTypes()
	var asked []*capacity.InstanceType
	w.sources.InstanceTypes = func(string) ([]*capacity.InstanceType, error) { return asked, nil }
	asked = all[1:] // no m5.large
	planned := make(chan struct{}, 100)
	w.OnPool(func() { planned <- struct{}{} })
	w.leading()
	is := func(name, want string) {
		t.Helper()
		w.eventually(name+" is "+want, func() bool {
			w.clock.Step(countDelay)
			o := &karpv1alpha1.NodeOverlay{}
			got := map[string]string{}
			if w.api.Get(w.ctx, client.ObjectKey{Name: name}, o) == nil {
				got = conditions(o)
			}
			return got["ValidationSucceeded"] == want && strings.HasPrefix(got["Ready"], strings.Fields(want)[0])
		})
	}
	is("a", "True")
	is("b", "True")
	is("wrong", `False RuntimeValidation: spec.requirements[0].operator: Unsupported value: "Near": supported values: "DoesNotExist", "Exists", "Gt", "Gte", "In", "Lt", "Lte", "NotIn"`)

	// The conflict ends with its cause.
	o := &karpv1alpha1.NodeOverlay{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	w.update(o, func() { o.Spec.Requirements = []karpv1alpha1.NodeSelectorRequirement{} })
	is("a", "False Conflict: conflicts with NodeOverlay b, which has the same weight, over the price of c5.large in pool default")
	w.hears("Warning Conflict conflicts with NodeOverlay b, which has the same weight, over the price of c5.large in pool default")
	for len(planned) > 0 {
		<-planned
	}
	if err := w.api.Delete(w.ctx, o); err != nil {
		t.Fatal(err)
	}
	is("a", "True")
	w.eventually("planners are told of an overlay that went", func() bool { return len(planned) > 0 })
	if got := offered(w.Pools(w.sources.InstanceTypes)[0]); got != "c5.large ao 1*, aspot 1*, bo +Inf, bspot +Inf" {
		t.Errorf("types: %s", got)
	}
	if got := w.Overlaid("default", all[1]).Offers[0].Price; got != 1 {
		t.Errorf("asked for alone, the price is %v", got)
	}
}
