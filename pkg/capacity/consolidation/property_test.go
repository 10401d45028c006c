package consolidation

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What holds for every proposal holds in random worlds, with every policy and constraint. The same input gives the same answer, whatever a
// planner has seen before.
func TestProposals(t *testing.T) {
	worlds := 400
	if testing.Short() {
		worlds = 100
	}
	used := New()
	moves, kinds := map[Reason]int{}, map[Kind]int{}
	for seed := range uint64(worlds) {
		w := drawn(t, seed)
		p := w.propose()
		if again := used.Propose(w.view, w.candidates, w.options); !reflect.DeepEqual(p, again) {
			t.Errorf("seed %d: another planner proposes something else:\n%+v\n%+v", seed, p, again)
		}
		for _, m := range p.Moves {
			moves[m.Reason]++
		}
		for _, k := range p.Kept {
			kinds[k.Kind]++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, reason := range []Reason{Empty, Underutilized, Drifted, Expired} {
		if moves[reason] < worlds/20 {
			t.Errorf("only %d moves for reason %s: this test makes the wrong worlds", moves[reason], reason)
		}
	}
	for _, kind := range []Kind{Protected, PolicyWhenEmpty, Young, Received, NoPrice, Dearer, Unbalanced, Paying, Budget, Unmovable} {
		if kinds[kind] == 0 {
			t.Errorf("no node was kept as %s: this test makes the wrong worlds", kind)
		}
	}
}

func FuzzProposals(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed + 1000)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { drawn(t, seed).propose() })
}

// The move of one node that is proposed first saves nearly as much per disruption as the best that there is.
func TestBestMove(t *testing.T) {
	sum, n, far := 0.0, 0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		pool := testPool("default", "on-demand", testTypes()[:8])
		w := newWorld(t, pool).free()
		p := w.options.Pools["default"]
		p.Budgets = map[Reason]int{Underutilized: 1}
		w.options.Pools["default"] = p
		for range 2 + r.IntN(4) {
			w.node(pool, pick(r, pool.Types...).Name, "a")
			for range 1 + r.IntN(4) {
				if class := classOf(t, testPod("x", pick[int64](r, 500, 1000, 1500, 2500), pick[int64](r, 1024, 2048, 5120))); class.Requests.Fits(w.view.Nodes[len(w.view.Nodes)-1].Free) {
					w.put(class, 1)
				}
			}
			if len(w.candidates[len(w.candidates)-1].Pods) == 0 {
				w.put(classOf(t, testPod("x", 100, 100)), 1)
			}
		}
		best := bestSingle(w, pool)
		out := w.propose()
		if best <= 0 {
			if len(out.Moves) > 0 {
				t.Errorf("seed %d: a move is proposed, and none saves anything", seed)
			}
			continue
		}
		got := 0.0
		if len(out.Moves) > 0 {
			got = out.Moves[0].Saves / out.Moves[0].Disruption
		}
		sum += got / best
		n++
		if got < 0.9*best {
			far++
		}
		if got > best*(1+1e-9) {
			t.Errorf("seed %d: a move of one node saves %f per disruption, the best %f", seed, got, best)
		}
	}
	if mean := sum / float64(n); n < 100 || mean < 0.97 || far > n/20 {
		t.Errorf("in %d worlds the first move has %.3f of the best score; in %d it has less than 0.9", n, mean, far)
	}
}

// bestSingle returns the most that emptying one node can save per disruption: every way to divide its pods among the other nodes and new
// ones is tried.
func bestSingle(w *world, pool *capacity.Pool) float64 {
	best := math.Inf(-1)
	for i := range w.candidates {
		c := &w.candidates[i]
		var free []capacity.Resources
		for j, n := range w.view.Nodes {
			if j != i {
				free = append(free, n.Free.Clone())
			}
		}
		cost := cheapest(c.Pods, free, nil, pool)
		best = max(best, (c.Price-cost)/(1+c.podCost()))
	}
	return best
}

// cheapest returns the lowest price of new nodes for pods that may also go to free capacity. rest are those that go to new nodes.
func cheapest(pods []Pod, free []capacity.Resources, rest []Pod, pool *capacity.Pool) float64 {
	if len(pods) == 0 {
		return partition(rest, nil, pool)
	}
	need := pods[0].Class.Requests
	best := cheapest(pods[1:], free, append(slices.Clone(rest), pods[0]), pool)
	for _, f := range free {
		if need.Fits(f) {
			f.Sub(need)
			best = min(best, cheapest(pods[1:], free, rest, pool))
			f.Add(need, 1)
		}
	}
	return best
}

// partition returns the lowest price of new nodes for pods.
func partition(pods []Pod, groups []capacity.Resources, pool *capacity.Pool) float64 {
	if len(pods) == 0 {
		sum := 0.0
		for _, g := range groups {
			price := math.Inf(1)
			for _, t := range pool.Types {
				if g.Fits(t.Allocatable) {
					price = min(price, t.Offers[0].Price)
				}
			}
			sum += price
		}
		return sum
	}
	need := pods[0].Class.Requests
	best := partition(pods[1:], append(slices.Clone(groups), need.Clone()), pool)
	for _, g := range groups {
		g.Add(need, 1)
		best = min(best, partition(pods[1:], groups, pool))
		g.Sub(need)
	}
	return best
}

// An adversary closes the other capacity whenever a node was emptied for it, and opens it again some time later. What waiting and moving cost
// is at most twice what the best decisions in hindsight cost, and one move per node.
func TestAccrualAgainstAdversary(t *testing.T) {
	const step = time.Minute
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		pool := testPool("default", "on-demand", testTypes()[:1])
		w := newWorld(t, pool)
		class := classOf(t, testPod("x", 1900, 100))
		nodes := 1 + r.IntN(4)
		for range nodes {
			w.add(pool, "c.2", class, 1)
		}
		other := &capacity.Node{Name: "other", Labels: map[string]string{}, Free: capacity.Resources{"cpu": 100_000, "memory": 1 << 40, "pods": 100}}
		other.Allocatable = other.Free
		w.view.Nodes = append(w.view.Nodes, other)
		price := w.candidates[0].Price
		once := DefaultRestartCost.Hours() * price // a node has one pod
		paid, optimum, moves := 0.0, 0.0, 0
		open, until := 0.0, 0.0 // for how long it has been open, and will be closed
		for range 3000 {
			other.Closed = until > 0
			p := w.pass(step)
			switch {
			case until > 0:
				if until -= step.Hours(); len(p.Moves) > 0 {
					t.Fatal("a move without capacity")
				}
				continue
			case len(p.Moves) == 0 && r.IntN(40) > 0:
				open += step.Hours()
				paid += price * step.Hours() * float64(nodes)
				continue
			}
			for i := range p.Moves { // the pods come back to nodes of their own at once
				w.options.Accrual.Pay(&p.Moves[i], w.options.Now)
				paid += p.Moves[i].Cost
				moves++
			}
			optimum += min(price*open, once) * float64(nodes)
			open, until = 0, r.Float64()
		}
		optimum += min(price*open, once) * float64(nodes)
		if bound := 2*optimum + float64(nodes)*(once+price*step.Hours()) + float64(moves)*price*step.Hours()*2; paid > bound {
			t.Errorf("seed %d: $%f for waiting and %d moves, the best is $%f", seed, paid, moves, optimum)
		}
		for pool, all := range w.options.Accrual.Totals() {
			if all.Paid > all.Accrued+1e-9 || all.Paid == 0 {
				t.Errorf("seed %d: %d moves of pool %s have cost $%f, and $%f have accrued", seed, moves, pool, all.Paid, all.Accrued)
			}
		}
	}
}
