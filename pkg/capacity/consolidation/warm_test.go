package consolidation

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A planner that has seen a cluster before proposes what a new one does, pass after pass, while pods go and come.
func TestWarm(t *testing.T) {
	moves := 0
	for seed := range uint64(6) {
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
			w.node(pool, pick(r, pool.Types...).Name, pick(r, testZones...))
			for range 20 {
				if class := pick(r, classes...); r.IntN(2) == 0 && class.Requests.Fits(w.view.Nodes[len(w.view.Nodes)-1].Free) {
					w.put(class, 1)
				}
			}
		}
		used := New()
		for pass := range 8 {
			w.options.Now = w.options.Now.Add(5 * time.Minute)
			warm, cold := used.Propose(w.view, w.candidates, w.options), New().Propose(w.view, w.candidates, w.options)
			if !reflect.DeepEqual(warm, cold) {
				t.Fatalf("seed %d, pass %d: a planner that has seen other passes proposes %d moves, a new one %d, or keeps nodes for other reasons", seed, pass, len(warm.Moves), len(cold.Moves))
			}
			w.options.Accrual.Observe(warm.Rates, w.candidates, w.options.Now)
			moves += len(warm.Moves)
			scaled := pick(r, classes...) // to about a third; what pods are worth changes with it
			for i := range w.candidates {
				c, free := &w.candidates[i], w.view.Nodes[i].Free
				c.Pods = slices.DeleteFunc(c.Pods, func(p Pod) bool {
					gone := p.Class == scaled && r.IntN(3) > 0
					if gone {
						free.Add(p.Class.Requests, 1)
					}
					return gone
				})
			}
		}
	}
	if moves == 0 {
		t.Error("no moves: this test makes the wrong worlds")
	}
}
