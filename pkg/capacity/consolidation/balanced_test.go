package consolidation

import (
	"math"
	"testing"
)

// The numbers are worked out by hand after Karpenter 1.14's ScoreMove and EvaluateBalancedMove.
func TestBalancedScores(t *testing.T) {
	pods := func(costs ...float64) (out []Pod) {
		for _, c := range costs {
			out = append(out, Pod{Cost: c})
		}
		return out
	}
	for name, tc := range map[string]struct {
		a, b   ConsolidationPolicy
		nodes  []int32
		saves  float64
		want   float64
		scored bool
	}{
		// Pool a: nodes of $2, $5 and $3 with 3, 25 and 9 disruptions of pods: $10, 40. Pool b: $1 and $3 with 1 and 17: $4, 20. A third
		// node of b has no price, and counts in neither sum.
		"one node, of one pool":                    {a: Balanced, nodes: []int32{0}, saves: 1.5, want: (1.5 / 10) / (4.0 / 40), scored: true},
		"a replacement that hardly saves":          {a: Balanced, nodes: []int32{0}, saves: 0.25, want: 0.25, scored: true},
		"a node with many pods":                    {a: Balanced, nodes: []int32{1}, saves: 5, want: 0.5 / 0.65, scored: true},
		"two pools share by what their nodes cost": {a: Balanced, b: Balanced, nodes: []int32{0, 3}, saves: 1.5, want: 1, scored: true},                     // a: $1.0 of 10 for 4 of 40; b: 1.25
		"the worse pool counts":                    {a: Balanced, b: Balanced, nodes: []int32{2, 4}, saves: 3, want: (1.5 / 4) / (18.0 / 20), scored: true}, // a: 0.6
		"the other pool isn't Balanced":            {a: WhenEmptyOrUnderutilized, b: Balanced, nodes: []int32{0, 3}, saves: 1.5, want: 1.25, scored: true},
		"no pool is":                               {a: WhenEmptyOrUnderutilized, b: WhenEmptyOrUnderutilized, nodes: []int32{0, 3}, saves: 1.5},
		"nothing is saved":                         {a: Balanced, nodes: []int32{0}, saves: 0, want: 0, scored: true},
	} {
		t.Run(name, func(t *testing.T) {
			candidates := []Candidate{
				{Pool: "a", Price: 2, Pods: pods(1, 2, -5)}, {Pool: "a", Price: 5, Pods: pods(20, 5)}, {Pool: "a", Price: 3, Pods: pods(9)},
				{Pool: "b", Price: 1, Pods: pods(1)}, {Pool: "b", Price: 3, Pods: pods(10, 7)}, {Pool: "b", Price: math.NaN(), Pods: pods(100)},
			}
			c := &cluster{o: &Options{Pools: map[string]Policy{"a": {Consolidate: tc.a}, "b": {Consolidate: tc.b}}}}
			for i := range candidates {
				c.nodes = append(c.nodes, node{c: &candidates[i], price: candidates[i].Price})
			}
			got, scored := c.balancedScore(tc.nodes, tc.saves, totalsOf(candidates))
			if scored != tc.scored || math.Abs(got-tc.want) > 1e-9 {
				t.Errorf("score %f (%v), want %f (%v)", got, scored, tc.want, tc.scored)
			}
		})
	}
}
