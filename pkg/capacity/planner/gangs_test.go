package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPlanOfGangs(t *testing.T) {
	gang := func(v *capacity.View, missing int) *capacity.View {
		for i := range v.Demand {
			v.Demand[i].Gang = &capacity.Gang{Key: "ns/group", Missing: missing}
		}
		return v
	}
	runPlans(t, []planCase{
		{name: "all of a gang", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("driver", "cpu=800m"))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("worker", "cpu=1500m")))
			return gang(v, 4)
		}, want: `
			default on-demand c.4 : map[driver:1 worker:2]
			default on-demand c.2 : map[driver:1]
			`},
		{name: "nothing of a gang that is short, and others get its room", view: func(t *testing.T) *capacity.View {
			v := gang(viewOf(t, 3, asking("driver", "cpu=800m"), testNode("n1", "a", 2, 8)), 3)
			v.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 0}
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=800m")))
			return v
		}, want: `
			n1: map[web:1]
			refused 3 driver: not all of the 3 pods that its group needs can be placed; default: limit of nodes 0 reached: 0 left
			`},
	})
}

func TestPlacementsThatDependOnEachOther(t *testing.T) {
	v := viewOf(t, 3, asking("web", "cpu=800m", withSpread(capacity.LabelZone)))
	v.Demand = append(v.Demand, demandOf(t, 1, asking("plain", "cpu=800m")), demandOf(t, 2, asking("alone", "cpu=800m", away("alone", capacity.LabelHostname))),
		demandOf(t, 1, asking("front", "cpu=800m", near("web", capacity.LabelZone))), demandOf(t, 2, asking("other", "cpu=800m", withSpread(capacity.LabelZone))))
	p := Decide(v, capacity.Options{})
	if err := check(v, p, capacity.Options{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, pl := range p.Placements {
		got[pl.Class.Labels["app"]] = pl.Group
	}
	if diff := cmp.Diff(map[string]int{"web": 1, "front": 1, "plain": 0, "alone": 0, "other": 2}, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}
