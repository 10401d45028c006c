package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// The lower bound counts what is bought: pods that limits leave out cost nothing, and pods that use the next pool cost what they cost
// there.
func TestLowerBoundIsOfWhatIsBought(t *testing.T) {
	for _, tc := range []struct {
		name    string
		pools   []*capacity.Pool
		refused bool
	}{
		{"all of it", []*capacity.Pool{testPool("open")}, false},
		{"a limit", []*capacity.Pool{limited(0)}, true},
		{"a limit, and another pool", []*capacity.Pool{limited(10), testPool("open")}, false},
	} {
		for _, effort := range []int{0, 20000} {
			v := &capacity.View{Pools: tc.pools, Demand: []capacity.Demand{demandOf(t, 40, asking("web", "cpu=900m memory=1Gi"))}}
			p := Decide(v, capacity.Options{Effort: effort})
			if got := len(p.Refused) > 0; got != tc.refused {
				t.Fatalf("%s: refused %v, want %v", tc.name, got, tc.refused)
			}
			if p.CostPerHour == 0 || p.LowerBound > p.CostPerHour || p.LowerBound < 0.8*p.CostPerHour {
				t.Errorf("%s, effort %d: costs %v, lower bound %v: want it just below", tc.name, effort, p.CostPerHour, p.LowerBound)
			}
		}
	}
}

// What the pods of new nodes pay adds up to a lower bound, no node's pods pay more than its price, and the more of a node is left over, the less of
// it is paid.
func TestFilled(t *testing.T) {
	for _, effort := range []int{packing.Quick, 0, 20000} {
		v := &capacity.View{Pools: []*capacity.Pool{testPool("open")}, Demand: []capacity.Demand{
			demandOf(t, 70, asking("web", "cpu=3 memory=5Gi")), demandOf(t, 110, asking("db", "cpu=1 memory=9Gi")),
		}}
		p, paid := Decide(v, capacity.Options{Effort: effort}), 0.0
		for _, n := range p.Nodes {
			if n.Filled <= 0 || n.Filled > 1 {
				t.Errorf("effort %d: a node is filled by %v", effort, n.Filled)
			}
			paid += n.Filled * n.Price
		}
		if paid > p.LowerBound*(1+1e-6) || paid < 0.9*p.LowerBound {
			t.Errorf("effort %d: pods pay %v, the lower bound is %v", effort, paid, p.LowerBound)
		}
	}
	alone := Decide(&capacity.View{Pools: []*capacity.Pool{testPool("open")}, Demand: []capacity.Demand{demandOf(t, 1, asking("web", "cpu=2100m"))}}, capacity.Options{})
	if len(alone.Nodes) != 1 || alone.Nodes[0].Filled > 0.7 || alone.Nodes[0].Filled < 0.4 {
		t.Errorf("a pod that uses about half of its node fills it by %v", alone.Nodes[0].Filled)
	}
}

// limited returns a pool with a limit that is enough for a quarter of the pods.
func limited(weight int32) *capacity.Pool {
	p := testPool("limited")
	p.Weight, p.Limits = weight, capacity.Resources{"cpu": 10_000}
	return p
}

// A pod that fits nowhere, for whatever reason, has no effect on the cost of the others.
func TestLowerBoundWithAPodThatFitsNowhere(t *testing.T) {
	for name, pod := range map[string]capacity.Demand{
		"more than any type has":           demandOf(t, 1, asking("big", "cpu=4000")),
		"a resource that no type has":      demandOf(t, 1, asking("gpu", "cpu=1 nvidia.com/gpu=1")),
		"the same, spread over zones":      demandOf(t, 8, asking("gpu", "cpu=1 nvidia.com/gpu=1", withSpread(capacity.LabelZone))),
		"a label that no type has":         demandOf(t, 1, asking("else", "cpu=1", on("karpenter.k8s.aws/instance-family", "none"))),
		"a gang of which some fit nowhere": gangOf(demandOf(t, 2, asking("gang", "cpu=4000")), 2),
	} {
		for _, effort := range []int{0, 20000} {
			v := &capacity.View{Pools: []*capacity.Pool{testPool("open")}, Demand: []capacity.Demand{
				demandOf(t, 7, asking("web", "cpu=3 memory=5Gi")), demandOf(t, 11, asking("db", "cpu=1 memory=9Gi")), demandOf(t, 5, asking("api", "cpu=1500m memory=1Gi", withSpread(capacity.LabelZone))),
			}}
			alone := Decide(v, capacity.Options{Effort: effort})
			v.Demand = append(v.Demand, pod)
			p := Decide(v, capacity.Options{Effort: effort})
			if len(p.Refused) != 1 || p.CostPerHour != alone.CostPerHour {
				t.Fatalf("%s: %d kinds refused, cost %v, alone %v", name, len(p.Refused), p.CostPerHour, alone.CostPerHour)
			}
			if alone.LowerBound == 0 || math.Abs(p.LowerBound-alone.LowerBound) > 1e-9 {
				t.Errorf("%s, effort %d: lower bound %v, %v without the pod", name, effort, p.LowerBound, alone.LowerBound)
			}
		}
	}
}

func gangOf(d capacity.Demand, missing int) capacity.Demand {
	d.Gang = &capacity.Gang{Key: "gang", Missing: missing}
	return d
}

// No plan for the same pods costs less than the bound of another plan: random worlds, in half of them with pods that nothing holds,
// planned with increasing effort.
func TestLowerBoundIsBelowTheBestKnownCost(t *testing.T) {
	known, refused := 0, 0
	for seed := range uint64(150) {
		d := dice{rand.New(rand.NewPCG(seed, 21))}
		v := d.world(t)
		if d.one(2) {
			v.Demand = append(v.Demand, demandOf(t, 1+d.IntN(3), asking("misfit", pick(d, "cpu=4000", "cpu=1 nvidia.com/gpu=1"))))
		}
		best, bounds := map[string]float64{}, map[string]float64{}
		for _, effort := range []int{0, 2000, 20000, 100000} {
			p := newRun(v, nil, &capacity.Options{Effort: effort}, &catalog.Memory{}).best()
			key := bought(p)
			if least, ok := best[key]; !ok || p.CostPerHour < least {
				best[key] = p.CostPerHour
			}
			bounds[key] = max(bounds[key], p.LowerBound)
			if p.LowerBound > 0 {
				known++
				refused += min(1, len(p.Refused))
			}
		}
		for key, cost := range best {
			if bounds[key] > cost*(1+1e-6) {
				t.Errorf("world %d: %s: lower bound %v, a plan for %v is known", seed, key, bounds[key], cost)
			}
		}
	}
	if known < 200 || refused < 100 {
		t.Errorf("%d plans with a bound, %d of them with refused pods: too few to tell anything", known, refused)
	}
}

// bought returns for which pods a plan buys nodes, from which pools, and how many of their preferences are dropped. Only plans with the
// same result can be compared by cost.
func bought(p outcome) string {
	nodes, count := map[string]*capacity.PlannedNode{}, map[string]int{}
	for _, n := range p.Nodes {
		nodes[n.ID] = n
	}
	for _, pl := range p.Placements {
		if n := nodes[pl.Node]; n != nil {
			count[pl.Class.Pod.Name+" in "+n.Pool.Name]++
		}
	}
	return fmt.Sprint(p.dropped, count) // maps are printed in key order
}
