package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// checkRemoved returns what is wrong with a plan after Remove, as far as the plan before it shows.
func checkRemoved(v *capacity.View, before, after *capacity.Plan, out map[int]capacity.Removal) error {
	needs, left, had := map[string]int{}, map[string]int{}, map[string]int{}
	groups := map[int]bool{}
	for i, pl := range before.Placements {
		if pl.Gang != nil {
			had[pl.Gang.Key]++
			needs[pl.Gang.Key] = max(needs[pl.Gang.Key], pl.Gang.Missing)
		}
		if r, ok := out[i]; ok && !r.RestHolds && pl.Group != 0 {
			groups[pl.Group] = true
		}
	}
	used := map[string]bool{}
	for _, pl := range after.Placements {
		used[pl.Node] = true
		if pl.Gang != nil {
			left[pl.Gang.Key]++
		}
		if groups[pl.Group] {
			return fmt.Errorf("%s of group %d is left", pl.Pod.Name, pl.Group)
		}
	}
	for key, n := range left {
		if n < needs[key] && n < had[key] {
			return fmt.Errorf("%d pods of gang %s are left, it needs %d", n, key, needs[key])
		}
	}
	cost := 0.0
	for _, n := range after.Nodes {
		cost += n.Price
		if !used[n.ID] {
			return fmt.Errorf("%s is empty", n.ID)
		}
	}
	if math.Abs(cost-after.CostPerHour) > 1e-6*(1+cost) {
		return fmt.Errorf("costs %v, is said to cost %v", cost, after.CostPerHour)
	}
	return checkAccountWithout(v, before, after)
}

// checkAccountWithout checks that each pod is placed or refused exactly once.
func checkAccountWithout(v *capacity.View, before, after *capacity.Plan) error {
	seen := map[types.UID]int{}
	for _, pl := range after.Placements {
		if pl.Owner == "" {
			seen[pl.Pod.UID]++
		}
	}
	for _, r := range after.Refused {
		for _, ref := range r.Pods {
			seen[ref.UID]++
		}
	}
	for _, d := range v.Demand {
		for _, ref := range d.Pods {
			if seen[ref.UID] != 1 {
				return fmt.Errorf("pod %s is answered %d times", ref.Name, seen[ref.UID])
			}
		}
	}
	return nil
}

func removeSome(t *testing.T, seed uint64) {
	d := dice{rand.New(rand.NewPCG(seed, 11))}
	v := d.world(t)
	for i := range v.Demand { // more gangs than a random world has
		if d.one(2) {
			v.Demand[i].Gang = &capacity.Gang{Key: pick(d, "g1", "g2"), Missing: 1 + d.IntN(6)}
		}
	}
	plan := Decide(v, capacity.Options{Effort: 100})
	before := *plan
	before.Placements = slices.Clone(plan.Placements)
	out := map[int]capacity.Removal{}
	for i := range plan.Placements {
		if d.one(6) {
			out[i] = capacity.Removal{Message: pick(d, "no room", "refused"), RestHolds: d.one(2)}
		}
	}
	plan.Remove(out)
	if err := checkRemoved(v, &before, plan, out); err != nil {
		t.Errorf("world %d without %v: %v\n%s", seed, out, err, summary(plan))
	}
}

func TestRemoveLeavesNoHalfGangs(t *testing.T) {
	for seed := range uint64(300) {
		removeSome(t, seed)
	}
}

func FuzzRemove(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed)
	}
	f.Fuzz(removeSome)
}
