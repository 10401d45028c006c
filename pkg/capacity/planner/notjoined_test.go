package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// An offering of which an instance has not become a node is bought only where nothing else is for sale at a sensible price. The cloud, which would
// take it for its price, isn't offered it beside others.
func TestPlanAfterAnInstanceThatDidNotJoin(t *testing.T) {
	for name, tc := range map[string]struct {
		factor float64 // of the price in zone b
		zones  []string
		want   string
	}{
		"dearer":         {2, []string{"a", "b"}, "b"},
		"much dearer":    {20, []string{"a", "b"}, "a"},
		"nothing else":   {1, []string{"a"}, "a"},
		"the same price": {1, []string{"a", "b"}, "b"},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, 1, asking("web", "cpu=12", on(capacity.LabelCapacityType, "on-demand")))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"), capacity.ValueIn(capacity.LabelZone, tc.zones...))
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					o := &typ.Offers[i]
					o.NotJoined = o.Zone == "a"
					if o.Zone == "b" {
						for _, other := range typ.Offers {
							if other.Zone == "a" && other.CapacityType == o.CapacityType {
								o.Price = other.Price * tc.factor
							}
						}
					}
				}
			}
			p := Decide(v, capacity.Options{})
			if err := check(v, p, capacity.Options{}); err != nil {
				t.Error(err)
			}
			if len(p.Nodes) != 1 {
				t.Fatalf("planned %+v, want one node", p.Nodes)
			}
			if p.LowerBound != 0 {
				t.Errorf("the bound is %v, though prices with a surcharge were compared", p.LowerBound)
			}
			if first := p.Nodes[0].Offers[0].Offer; first.Zone != tc.want || p.Nodes[0].Price != first.Price {
				t.Errorf("offering %+v first, at $%v, want zone %s", first, p.Nodes[0].Price, tc.want)
			}
			for _, o := range p.Nodes[0].Offers {
				if tc.want == "b" && o.Offer.NotJoined {
					t.Errorf("%s in zone %s is offered, too", o.Type.Name, o.Offer.Zone)
				}
			}
		})
	}
}
