package consolidation

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A planner that has seen a cluster before proposes what a new one does, pass after pass, while pods and nodes go and come and prices change.
func TestWarm(t *testing.T) {
	moves := 0
	for seed := range uint64(6) {
		moves += warm(t, seed, 8)
	}
	if moves == 0 {
		t.Error("no moves: this test makes the wrong worlds")
	}
}

func FuzzWarm(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(seed + 1000)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { warm(t, seed, 4) })
}

// warm compares a planner with new ones in some passes over a random cluster, and returns how many moves they have proposed.
func warm(t *testing.T, seed uint64, passes int) (moves int) {
	r := rand.New(rand.NewPCG(seed, 4))
	pool := testPool("default", "on-demand", testTypes())
	w := newWorld(t, pool)
	if seed%2 > 0 {
		w.free()
	}
	var classes []*capacity.Class
	for range 14 {
		classes = append(classes, classOf(t, testPod("x", 100*(1+r.Int64N(30)), 256*(1+r.Int64N(24)))))
	}
	for range 100 {
		w.join(r, pool, classes)
	}
	used := New()
	for pass := range passes {
		w.options.Now = w.options.Now.Add(5 * time.Minute)
		warm, cold := used.Propose(w.view, w.candidates, w.options), New().Propose(w.view, w.candidates, w.options)
		if !reflect.DeepEqual(warm, cold) {
			t.Fatalf("seed %d, pass %d: a planner that has seen other passes proposes %d moves, a new one %d, or keeps nodes for other reasons", seed, pass, len(warm.Moves), len(cold.Moves))
		}
		w.options.Accrual.Observe(warm.Rates, w.candidates, w.options.Now)
		moves += len(warm.Moves)
		w.change(r, pool, classes)
	}
	return moves
}

// join adds a node with pods.
func (w *world) join(r *rand.Rand, pool *capacity.Pool, classes []*capacity.Class) {
	w.node(pool, pick(r, pool.Types...).Name, pick(r, testZones...))
	for range 20 {
		if class := pick(r, classes...); r.IntN(2) == 0 && class.Requests.Fits(w.view.Nodes[len(w.view.Nodes)-1].Free) {
			w.put(class, 1)
		}
	}
}

// change changes pods, nodes or prices.
func (w *world) change(r *rand.Rand, pool *capacity.Pool, classes []*capacity.Class) {
	part := 1.0
	gone := pick(r, classes...)
	switch r.IntN(5) {
	case 0: // a class is scaled to about a third; what pods are worth changes with it
	case 1: // some pods go on a few nodes
		part, gone = 0.05, nil
	case 2: // nodes come
		for range 1 + r.IntN(5) {
			w.join(r, pool, classes)
		}
		return
	case 3: // nodes go, others are cordoned
		left := len(w.view.Nodes) - 1 - r.IntN(5)
		w.view.Nodes, w.candidates = w.view.Nodes[:left], w.candidates[:left]
		n := *pick(r, w.view.Nodes...)
		n.Closed = true
		w.view.Nodes[slices.IndexFunc(w.view.Nodes, func(other *capacity.Node) bool { return other.Name == n.Name })] = &n
		return
	case 4: // a type's price changes
		pool.Types = slices.Clone(pool.Types)
		at := r.IntN(len(pool.Types))
		dearer := *pool.Types[at]
		dearer.Offers = slices.Clone(dearer.Offers)
		for i := range dearer.Offers {
			dearer.Offers[i].Price *= 0.8 + 0.4*r.Float64()
		}
		pool.Types[at] = &dearer
		return
	}
	for i := range w.candidates {
		if r.Float64() >= part {
			continue
		}
		c, free := &w.candidates[i], w.view.Nodes[i].Free
		c.Pods = slices.DeleteFunc(c.Pods, func(p Pod) bool {
			goes := (gone == nil || p.Class == gone) && r.IntN(3) > 0
			if goes {
				free.Add(p.Class.Requests, 1)
			}
			return goes
		})
	}
}
