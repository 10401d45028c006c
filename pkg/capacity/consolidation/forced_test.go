package consolidation

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// drifting returns a world of pools with n drifted nodes each, which new nodes have to replace.
func drifting(t *testing.T, n int, pools ...*capacity.Pool) *world {
	w := newWorld(t, pools...)
	for _, p := range pools {
		for i := range n {
			w.add(p, "c.4", classOf(t, testPod("x-"+p.Name, 3000, 4096, in(p))), 1)
			c := &w.candidates[len(w.candidates)-1]
			c.Pool, c.Forced, c.ForcedAt = p.Name, Drifted, noon.Add(-time.Duration(i)*time.Minute)
		}
	}
	return w
}

// in has a pod ask for nodes of a pool.
func in(p *capacity.Pool) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = p.Labels }
}

// allow sets how many drifted nodes of a pool may be emptied.
func (w *world) allow(pool string, n int, change ...func(*Policy)) {
	policy := w.options.Pools[pool]
	policy.Budgets = map[Reason]int{Drifted: n, Underutilized: 100}
	for _, f := range change {
		f(&policy)
	}
	w.options.Pools[pool] = policy
}

// emptied returns the nodes of a proposal's moves, by move.
func emptied(p *Proposal) (out [][]string) {
	for _, m := range p.Moves {
		out = append(out, m.Nodes)
	}
	return out
}

func equal(a, b [][]string) bool { return slices.EqualFunc(a, b, slices.Equal[[]string]) }

// Those that have drifted for the longest are emptied first, several at a time, as many as the budget allows.
func TestOldestDriftIsFirst(t *testing.T) {
	w := drifting(t, 5, onDemand())
	w.allow("default", 3)
	p := w.propose()
	if want := [][]string{{"node-2", "node-3", "node-4"}}; !equal(emptied(p), want) {
		t.Errorf("moves empty %q, want %q", emptied(p), want)
	}
	if k := w.kept(p, 0); k.Kind != Budget || k.Reason != Drifted {
		t.Errorf("kept: %+v", k)
	}
}

// Nodes whose pods need no new node come before the older ones.
func TestDriftedNodesWithoutPodsAreFirst(t *testing.T) {
	w := drifting(t, 2, onDemand())
	w.candidates[0].Pods = nil
	w.allow("default", 1)
	if p := w.propose(); !equal(emptied(p), [][]string{{"node-0"}}) {
		t.Errorf("moves empty %q", emptied(p))
	}
}

// Pools take turns, and each pass begins with another one. New nodes are not shared between pools.
func TestPoolsTakeTurns(t *testing.T) {
	a, b := testPool("a", "on-demand", testTypes()), testPool("b", "on-demand", testTypes())
	for pass, want := range [][][]string{{{"node-1"}, {"node-3"}}, {{"node-3"}, {"node-1"}}} {
		w := drifting(t, 2, a, b)
		w.allow("a", 1)
		w.allow("b", 1)
		w.options.Pass = pass
		if p := w.propose(); !equal(emptied(p), want) {
			t.Errorf("pass %d: moves empty %q, want %q", pass, emptied(p), want)
		}
	}
}

// A node that can't be emptied uses nothing of the budget.
func TestUnmovableNodesLeaveTheirTurn(t *testing.T) {
	w := drifting(t, 3, onDemand())
	w.candidates[2].Pods[0].Class = classOf(t, testPod("huge", 300000, 4096))
	w.allow("default", 1)
	p := w.propose()
	if want := [][]string{{"node-1"}}; !equal(emptied(p), want) {
		t.Errorf("moves empty %q, want %q", emptied(p), want)
	}
	if k := w.kept(p, 2); k.Kind != Full {
		t.Errorf("kept: %+v", k)
	}
}

// As long as new nodes haven't proved to work, one of them is launched at a time, over all pools of the same roll-out; and none for money.
func TestCanary(t *testing.T) {
	a, b := testPool("a", "on-demand", testTypes()), testPool("b", "on-demand", testTypes())
	unproven := func(p *Policy) { p.Canary = "class" }
	for name, tc := range map[string]struct {
		change func(w *world)
		want   [][]string
		why    string // of node-0
	}{
		"one node of all pools": {func(*world) {}, [][]string{{"node-2"}}, "nodes of pool a are launched one at a time until one of them has proved to work"},
		"one of each roll-out": {func(w *world) {
			w.allow("b", 3, func(p *Policy) { p.Canary = "other" })
		}, [][]string{{"node-2"}, {"node-5"}}, "nodes of pool a are launched one at a time until one of them has proved to work"},
		"held": {func(w *world) {
			for _, pool := range []string{"a", "b"} {
				w.allow(pool, 3, unproven, func(p *Policy) { p.Held = "node x is being tried" })
			}
		}, nil, "node x is being tried"},
	} {
		t.Run(name, func(t *testing.T) {
			w := drifting(t, 3, a, b)
			w.allow("a", 3, unproven)
			w.allow("b", 3, unproven)
			tc.change(w)
			p := w.propose()
			var got [][]string
			for _, m := range p.Moves {
				got = append(got, m.Nodes)
			}
			if !equal(got, tc.want) {
				t.Errorf("moves empty %q, want %q", got, tc.want)
			}
			if k := w.kept(p, 0); k.Kind != RollOut || k.Text() != tc.why {
				t.Errorf("kept: %s %s", k.Kind, k.Text())
			}
		})
	}
}

// If no node can be replaced by a single one, the canary is the node that needs the fewest.
func TestCanaryOfSeveralNodes(t *testing.T) {
	large, small := testPool("default", "on-demand", testTypes()), testPool("default", "on-demand", testTypes()[:2])
	w := newWorld(t, small)
	for _, pods := range []int{4, 2, 3} {
		w.add(large, "c.16", classOf(t, testPod("x", 3000, 4096)), pods)
		w.candidates[len(w.candidates)-1].Forced = Drifted
	}
	w.allow("default", 3, func(p *Policy) { p.Canary = "class" })
	p := w.propose()
	if len(p.Moves) != 1 || !slices.Equal(p.Moves[0].Nodes, []string{"node-1"}) || len(p.Moves[0].New) != 2 {
		t.Errorf("moves: %+v", p.Moves)
	}
}

// A move that needs no new node is no canary.
func TestNoCanaryWithoutNewNodes(t *testing.T) {
	pool := onDemand()
	w := drifting(t, 3, pool)
	w.add(pool, "c.16", classOf(t, testPod("y", 100, 128)), 1)
	w.allow("default", 3, func(p *Policy) { p.Canary, p.Held = "class", "node x is being tried" })
	p := w.propose()
	n := 0
	for _, m := range p.Moves {
		n += len(m.Nodes)
	}
	if n != 3 {
		t.Errorf("moves: %+v", p.Moves)
	}
}

// No node is launched to save money where new nodes haven't proved to work.
func TestNoSavingWithUnprovenNodes(t *testing.T) {
	pool := onDemand()
	w := newWorld(t, pool).free()
	w.add(pool, "r.16", classOf(t, testPod("small", 500, 1024)), 2)
	w.allow("default", 1, func(p *Policy) { p.Canary = "class" })
	if p := w.propose(); len(p.Moves) > 0 || w.kept(p, 0).Kind != RollOut {
		t.Errorf("moves: %+v, kept %+v", p.Moves, p.Kept)
	}
}

// A node that has to go is emptied also where new nodes for its pods cost more than it does, such as nodes on demand in place of a spot node.
func TestForcedAtAnyPrice(t *testing.T) {
	pool := onDemand()
	for _, reason := range []Reason{Interrupted, Drifted} {
		w := newWorld(t, pool)
		w.add(pool, "c.4", classOf(t, testPod("x", 3000, 4096)), 1)
		w.candidates[0].Price, w.candidates[0].Forced = 0.001, reason
		w.allow("default", 1)
		p := w.propose()
		if len(p.Moves) != 1 || len(p.Moves[0].New) != 1 || len(p.Moves[0].Placements) != 1 {
			t.Errorf("%s: moves %+v, kept %+v", reason, p.Moves, p.Kept)
		}
	}
}
