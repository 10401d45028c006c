package consolidation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
)

// uneven returns a pool that balances zones within 10 %, where everything in zone b costs so many times what it costs in a.
func uneven(capacityType string, times float64) *capacity.Pool {
	p := testPool("default", capacityType, testTypes())
	for _, typ := range p.Types {
		for i := range typ.Offers {
			if typ.Offers[i].Zone == "b" {
				typ.Offers[i].Price *= times
			}
		}
	}
	p.ZoneBalance = new(.1)
	return p
}

// zonesOfNew counts the new nodes of all moves by zone.
func zonesOfNew(p *Proposal) map[string]int {
	out := map[string]int{}
	for _, m := range p.Moves {
		for _, n := range m.New {
			out[n.Labels[capacity.LabelZone]]++
		}
	}
	return out
}

// A node that is dearer because of its zone is kept if its pool tolerates that, alone as well as together with others, on demand as well as spot;
// if it is dearer still, it is replaced.
func TestToleratedPriceIsNoSaving(t *testing.T) {
	for name, tc := range map[string]struct {
		capacityType string
		times        float64
		off          bool
		moves        bool
	}{
		"within the tolerance":    {"on-demand", 1.08, false, false},
		"at its end":              {"on-demand", 1.1, false, false},
		"beyond it":               {"on-demand", 1.12, false, true},
		"without balance":         {"on-demand", 1.08, true, true},
		"spot":                    {"spot", 1.08, false, false},
		"spot, beyond it":         {"spot", 1.12, false, true},
		"spot, without balance":   {"spot", 1.08, true, true},
		"all zones cost the same": {"on-demand", 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := uneven(tc.capacityType, tc.times)
			if tc.off {
				pool.ZoneBalance = nil
			}
			w := newWorld(t, pool).free()
			policy := w.options.Pools["default"]
			policy.SpotFlexibility = 1
			w.options.Pools["default"] = policy
			class := classOf(t, testPod("x", 3500, 7<<10))
			for i := range 8 { // full nodes of the cheapest type, half of them in each zone
				w.node(pool, "c.4", []string{"a", "b"}[i%2])
				w.put(class, 1)
			}
			for pass := range 6 { // passes try different sets of nodes together
				w.options.Pass = pass
				p := w.propose()
				if (len(p.Moves) > 0) != tc.moves {
					t.Fatalf("pass %d: moves %+v, want some: %v", pass, p.Moves, tc.moves)
				}
				if k := w.kept; !tc.moves && tc.times > 1 {
					text := k(p, 1)
					if !strings.Contains(text.Text(), "nodes of its pool may cost 10 % more than the cheapest, so that zones are even (annotation dovetail.sh/zone-balance)") {
						t.Errorf("kept: %s", text.Text())
					}
					if text = k(p, 0); strings.Contains(text.Text(), "zone-balance") {
						t.Errorf("the cheapest is kept: %s", text.Text())
					}
				}
			}
		})
	}
}

// New nodes of moves are spread over zones, those that replace drifted nodes, too.
func TestNewNodesOfMovesAreBalanced(t *testing.T) {
	class := classOf(t, testPod("x", 3500, 7<<10))
	small := classOf(t, testPod("y", 1500, 3<<10))
	for name, tc := range map[string]struct {
		times float64
		off   bool
		make  func(w *world, pool *capacity.Pool)
		want  map[string]int
	}{
		"drifted nodes": {times: 1.05, make: func(w *world, pool *capacity.Pool) {
			for range 4 {
				w.node(pool, "c.4", "a").Forced = Drifted
				w.put(class, 1)
			}
		}, want: map[string]int{"a": 2, "b": 2}},
		"drifted nodes, without balance": {times: 1.05, off: true, make: func(w *world, pool *capacity.Pool) {
			for range 4 {
				w.node(pool, "c.4", "a").Forced = Drifted
				w.put(class, 1)
			}
		}, want: map[string]int{"a": 4}},
		"drifted nodes, a zone is too dear": {times: 1.2, make: func(w *world, pool *capacity.Pool) {
			for range 4 {
				w.node(pool, "c.4", "a").Forced = Drifted
				w.put(class, 1)
			}
		}, want: map[string]int{"a": 4}},
		"a node that is too large": {times: 1.05, make: func(w *world, pool *capacity.Pool) {
			w.node(pool, "c.4", "a")
			w.put(class, 1)
			w.node(pool, "m.4", "a")
			w.put(small, 1)
		}, want: map[string]int{"b": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := uneven("on-demand", tc.times)
			if tc.off {
				pool.ZoneBalance = nil
			}
			pool.Types = slices.DeleteFunc(pool.Types, func(typ *capacity.InstanceType) bool { return typ.Capacity["cpu"] > 4000 }) // one for each pod
			w := newWorld(t, pool).free()
			tc.make(w, pool)
			if diff := cmp.Diff(tc.want, zonesOfNew(w.propose())); diff != "" {
				t.Errorf("new nodes by zone (-want +got):\n%s", diff)
			}
		})
	}
}

// Provisioning and consolidation don't undo each other's work: in a pool that balances zones, pods come and go, and after a while no node is replaced
// any more. Nodes that provisioning buys dearer for the sake of even zones are never replaced for that reason.
func TestBalanceIsStable(t *testing.T) {
	moved := 0
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		pool := uneven(pick(r, "on-demand", "spot"), 1+.1*r.Float64())
		w := newWorld(t, pool).free()
		class := classOf(t, testPod("x", pick[int64](r, 900, 1900, 3500), 7<<10))
		for round := range 4 {
			plan := planner.Decide(&capacity.View{Pools: w.view.Pools, Nodes: w.view.Nodes, Demand: []capacity.Demand{{Class: class, Pods: refs(round, 3+r.IntN(9))}}}, capacity.Options{Effort: 10_000})
			w.buy(pool, plan)
			for pass := 0; ; pass++ {
				w.options.Pass = pass
				p := w.propose()
				if len(p.Moves) == 0 {
					break
				}
				for _, m := range p.Moves {
					moved += len(m.New)
				}
				if pass == 20 {
					t.Fatalf("seed %d: after %d passes nodes are still replaced: %+v", seed, pass, p.Moves)
				}
				w.carryOut(pool, p)
			}
		}
		counts := capacity.ZonesOf(w.view.Nodes, w.view.Pools)["default"]
		if d := counts["a"] - counts["b"]; d < -2 || d > 2 {
			t.Errorf("seed %d: nodes by zone: %v", seed, counts)
		}
	}
	if moved == 0 {
		t.Error("nothing was consolidated: this test makes the wrong worlds")
	}
}

// refs are n pods.
func refs(round, n int) (out []capacity.PodRef) {
	for i := range n {
		name := fmt.Sprintf("x-%d-%d", round, i)
		out = append(out, capacity.PodRef{UID: types.UID(name), Namespace: "default", Name: name})
	}
	return out
}

// buy adds the nodes and pods of a plan: each node becomes its cheapest offering.
func (w *world) buy(pool *capacity.Pool, plan *capacity.Plan) {
	names := map[string]string{}
	for _, n := range plan.Nodes {
		w.node(pool, n.Offers[0].Type.Name, n.Offers[0].Offer.Zone)
		c := &w.candidates[len(w.candidates)-1]
		w.serial++
		node := w.view.Nodes[len(w.view.Nodes)-1]
		node.Name = fmt.Sprintf("bought-%d", w.serial)
		node.Labels[capacity.LabelHostname] = node.Name
		c.Node = node.Name
		names[n.ID] = node.Name
	}
	for _, pl := range plan.Placements {
		w.place(pl.Class, pl.Pod, pl.Node, names)
	}
}

func (w *world) place(class *capacity.Class, pod capacity.PodRef, node string, names map[string]string) {
	if name := names[node]; name != "" {
		node = name
	}
	for i := range w.candidates {
		if w.candidates[i].Node == node {
			w.candidates[i].Pods = append(w.candidates[i].Pods, Pod{Ref: pod, Class: class, Cost: 1})
			w.nodeOf(node).Free.Sub(class.Requests)
			return
		}
	}
	w.t.Fatalf("there is no node %s", node)
}

// carryOut makes the moves of a proposal.
func (w *world) carryOut(pool *capacity.Pool, p *Proposal) {
	plan := &capacity.Plan{}
	gone := map[string]bool{}
	for _, m := range p.Moves {
		plan.Nodes = append(plan.Nodes, m.New...)
		plan.Placements = append(plan.Placements, m.Placements...)
		for _, n := range m.Nodes {
			gone[n] = true
		}
	}
	w.buy(pool, plan)
	var candidates []Candidate
	var nodes []*capacity.Node
	for i := range w.candidates {
		if !gone[w.candidates[i].Node] {
			candidates, nodes = append(candidates, w.candidates[i]), append(nodes, w.view.Nodes[i])
		}
	}
	w.candidates, w.view.Nodes = candidates, nodes
}

// What holds for every proposal holds for pools that balance zones.
func TestProposalsOfBalancedPools(t *testing.T) {
	zoned := 0
	for seed := range uint64(150) {
		w := drawn(t, seed)
		r := rand.New(rand.NewPCG(seed, 3))
		for _, p := range w.view.Pools {
			if r.IntN(3) > 0 {
				p.ZoneBalance = new(pick(r, 0, .1, .5))
			}
		}
		for _, typ := range w.view.Pools[0].Types {
			for i := range typ.Offers {
				typ.Offers[i].Price *= 1 + .2*r.Float64()
			}
		}
		for i := range w.candidates {
			c, n := &w.candidates[i], w.view.Nodes[i]
			for _, typ := range w.view.Pools[0].Types {
				for _, o := range typ.Offers {
					if typ.Name == n.Labels["node.kubernetes.io/instance-type"] && o.Zone == n.Labels[capacity.LabelZone] && o.CapacityType == c.CapacityType && known(c.Price) {
						c.Price = o.Price
					}
				}
			}
		}
		p := w.propose()
		for _, m := range p.Moves {
			for _, n := range m.New {
				if n.Pool.Balances() && n.Labels[capacity.LabelZone] != "" {
					zoned++
				}
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if zoned < 20 {
		t.Errorf("only %d new nodes have a zone", zoned)
	}
}
