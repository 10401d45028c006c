package consolidation

import (
	"math"
	"testing"
	"time"
)

// The examples are worked out by hand from Karpenter's definition: a move's part of what a pool costs, over its part of the pool's disruption
// (1 for each node, and what evicting each of its pods costs if that is above zero). What a move of several pools saves is divided by what their
// nodes cost, the lowest score counts, and a pool with another policy has none.
func TestBalancedScoresWithOtherPods(t *testing.T) {
	made := func(pool string, price float64, costs ...float64) Candidate {
		c := Candidate{Pool: pool, Price: price}
		for _, cost := range costs {
			c.Pods = append(c.Pods, Pod{Cost: cost})
		}
		return c
	}
	fixed := func(c Candidate, cost float64) Candidate {
		c.OtherPods = cost
		return c
	}
	for name, tc := range map[string]struct {
		all    []Candidate
		move   []int32
		saves  float64
		policy map[string]ConsolidationPolicy
		score  float64
		none   bool
	}{
		// (1/4) / (3/12)
		"an average node is deleted": {all: []Candidate{made("p", 1, 1, 1), made("p", 1, 1, 1), made("p", 1, 1, 1), made("p", 1, 1, 1)}, move: []int32{0}, saves: 1, score: 1},
		// (0.5/4) / (3/12)
		"half of its price is saved: just enough": {all: []Candidate{made("p", 1, 1, 1), made("p", 1, 1, 1), made("p", 1, 1, 1), made("p", 1, 1, 1)}, move: []int32{0}, saves: 0.5, score: 0.5},
		// (1/3) / (2.5/6.5): the pod of -3 counts nothing
		"pods below zero": {all: []Candidate{made("p", 1, 1.5, -3), made("p", 2, 1, 2)}, move: []int32{0}, saves: 1, score: (1.0 / 3) / (2.5 / 6.5)},
		// (2.25/10) / (7/20)
		"two nodes": {all: []Candidate{made("p", 2, 1, 1), made("p", 3, 1, 1, 1), made("p", 5, 4, 4, 4)}, move: []int32{0, 1}, saves: 2.25, score: 0.225 / (7.0 / 20)},
		// p: 1.2 x 1/3 = 0.4: (0.4/4) / (2/6) = 0.3; q: 0.8: (0.8/2) / (3/3)
		"two pools": {all: []Candidate{made("p", 1, 1), made("p", 3, 1, 1, 1), made("q", 2, 2)}, move: []int32{0, 2}, saves: 1.2, score: 0.3},
		// p has no score; q as above
		"only one of them is Balanced": {all: []Candidate{made("p", 1, 1), made("p", 3, 1, 1, 1), made("q", 2, 2)}, move: []int32{0, 2}, saves: 1.2,
			policy: map[string]ConsolidationPolicy{"p": WhenEmptyOrUnderutilized}, score: 0.4},
		"none is":          {all: []Candidate{made("p", 1, 1)}, move: []int32{0}, saves: 1, policy: map[string]ConsolidationPolicy{"p": ""}, none: true},
		"nothing is saved": {all: []Candidate{made("p", 1, 1), made("p", 1, 1)}, move: []int32{0}, saves: -0.1, score: 0},
		// (1/2) / (2/8): a pod that can't move, on a node that can't be emptied, is part of the pool's disruption
		"pods without controller": {all: []Candidate{made("p", 1, 1), fixed(made("p", 1), 5)}, move: []int32{0}, saves: 1, score: 0.5 / (2.0 / 8)},
	} {
		t.Run(name, func(t *testing.T) {
			c := &cluster{o: &Options{Now: time.Unix(0, 0), Pools: map[string]Policy{}}}
			for i := range tc.all {
				x := &tc.all[i]
				c.nodes = append(c.nodes, node{c: x, price: x.Price})
				policy, set := tc.policy[x.Pool]
				if !set {
					policy = Balanced
				}
				c.o.Pools[x.Pool] = Policy{Consolidate: policy}
			}
			score, scored := c.balancedScore(tc.move, tc.saves, totalsOf(tc.all))
			if scored == tc.none || math.Abs(score-tc.score) > 1e-12 {
				t.Errorf("score %f (%v), want %f", score, scored, tc.score)
			}
		})
	}
}
