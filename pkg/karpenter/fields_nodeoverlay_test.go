package karpenter

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestEveryFieldOfNodeOverlay tests the effects of an overlay's fields on instance types; TestOverlaysOnTypes has more cases.
func TestEveryFieldOfNodeOverlay(t *testing.T) {
	k := &kindOfFields{
		kind: "NodeOverlay",
		base: `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: o, uid: uid-of-o, generation: 1}
spec: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]}
`,
		more: func(t *testing.T, u *unstructured.Unstructured) []string {
			o := used[*karpv1alpha1.NodeOverlay](t, u, NodeOverlays.New)
			if why := Malformed(o); why != "" {
				return strings.Split(why, "; ")
			}
			_, errs := overlayOf(o)
			return fieldTexts(errs)
		},
		see: func(t *testing.T, u *unstructured.Unstructured, at string) string {
			v := NewOverlays()
			o := used[*karpv1alpha1.NodeOverlay](t, u, NodeOverlays.New)
			v.Put(o.Name, o)
			other := testOverlay("other", []string{"node.kubernetes.io/instance-type In m5.large"}, price("9"), weighing(5))
			if at == "weight" {
				o.Spec.Price = other.Spec.Price
				other.Spec.Price = nil
				v.Put("other", other)
				return fmt.Sprint(v.sorted[0].name, " before ", v.sorted[1].name)
			}
			pool := &capacity.Pool{Name: "default", Types: twoTypes(), Labels: map[string]string{"team": "a"}}
			v.Apply([]*capacity.Pool{pool})
			if at == "requirements" {
				return fmt.Sprintf("pool %v, type %v, offer %v", valuesOf(v.sorted[0].ofPool), valuesOf(v.sorted[0].ofType), valuesOf(v.sorted[0].ofOffer))
			}
			return strings.Split(offered(pool), "\n")[0]
		},
	}
	k.run(t, []fieldCase{
		{
			fields: []string{"requirements[].key", "requirements[].operator", "requirements[].values[]"}, at: "requirements",
			valid: `[{key: team, operator: Exists}, {key: karpenter.k8s.aws/instance-cpu, operator: Gte, values: ["4"]}, {key: topology.kubernetes.io/zone, operator: NotIn, values: [b]}]`,
			want:  "pool map[team:team exists], type map[karpenter.k8s.aws/instance-cpu:karpenter.k8s.aws/instance-cpu >= 4], offer map[topology.kubernetes.io/zone:topology.kubernetes.io/zone not in (b)]",
			invalid: []wrong{
				{"null", "spec.requirements"}, {`[{operator: Exists}]`, "spec.requirements[0].key"}, {`[{key: karpenter.sh/other, operator: Exists}]`, "spec.requirements[0].key"}, {`[{key: kubernetes.io/hostname, operator: Exists}]`, "spec.requirements[0].key"},
				{`[{key: karpenter.k8s.aws/capacity-reservation-id, operator: Exists}]`, "spec.requirements[0].key"}, {`[{key: a, operator: Near}]`, "spec.requirements[0].operator"}, {`[{key: a, operator: In, values: []}]`, "spec.requirements"},
				{`[{key: a, operator: NotIn, values: []}]`, "spec.requirements"}, {`[{key: a, operator: Lt, values: [x]}]`, "spec.requirements"}, {`[{key: a, operator: In, values: ["b c"]}]`, "spec.requirements[0].values[0]"},
			},
		},
		{fields: []string{"price"}, at: "price", valid: `"0.5"`, want: "m5.large ao 0.5*, aspot 0.5*, bo 0.5*, bspot 0.5*", invalid: refusedAs("spec.price", `"-1"`, `"1e3"`, "free", "1")},
		{fields: []string{"priceAdjustment"}, at: "priceAdjustment", valid: `"-50%"`, want: "m5.large ao 0.05*, aspot 0.0125*, bo 0.05*, bspot 0.0125*", invalid: refusedAs("spec.priceAdjustment", `"5"`, `"-150%"`, "half")},
		{
			fields: []string{"capacity{}"}, at: "capacity", valid: "{example.com/w: 3}", want: "m5.large ao 0.1, aspot 0.025, bo 0.1, bspot 0.025; example.com/w=3/3",
			invalid: refusedAs("spec.capacity", "{cpu: 1}", "{memory: 1Gi}", "{pods: 1}", "{ephemeral-storage: 1Gi}", "{widgets: 1}", "{example.com/w: lots}", "{example.com/w: -1}"),
		},
		{fields: []string{"weight"}, at: "weight", valid: "6", want: "o before other", invalid: refusedAs("spec.weight", "0", "10001", "heavy")},
	})
	if got := fieldTexts(shipped.Admit(k.with(t, "", `{requirements: [], price: "1", priceAdjustment: "+1"}`))); len(got) != 1 || !strings.HasPrefix(got[0], "spec:") {
		t.Errorf("both price and priceAdjustment: %q", got)
	}
}
