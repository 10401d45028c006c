package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Spot capacity that the cloud recommends to leave is less liked: what costs hardly more is bought instead, and nothing that costs much more. Nothing
// is known then of a bound for the price.
func TestPlanOfCapacityToLeave(t *testing.T) {
	for name, tc := range map[string]struct {
		factor float64 // of the price in zone b
		want   string
	}{"the same price": {1, "b"}, "hardly dearer": {1.05, "b"}, "dearer": {1.2, "a"}} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, 1, asking("web", "cpu=12", on(capacity.LabelCapacityType, "spot")))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"), capacity.ValueIn(capacity.LabelZone, "a", "b"))
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					o := &typ.Offers[i]
					o.Leaving = o.CapacityType == capacity.CapacityTypeSpot && o.Zone == "a"
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
			if len(p.Nodes) != 1 || p.Nodes[0].Offers[0].Offer.Zone != tc.want || p.LowerBound != 0 {
				t.Fatalf("planned %+v, bound %v, want a node in zone %s first", p.Nodes, p.LowerBound, tc.want)
			}
		})
	}
}
