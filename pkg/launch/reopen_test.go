package launch

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// early is a planner that sees nothing to buy the first time, while pools change.
type early struct {
	w     *world
	plans int
}

func (e *early) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	if e.plans++; e.plans > 1 {
		return plain{}.Plan(v, opts)
	}
	e.w.parts.Triggers.Changed()
	e.w.hears() // all of it, before the plan has refused any pod
	out := &capacity.Plan{}
	for _, d := range v.Demand {
		out.Refused = append(out.Refused, capacity.Refusal{Class: d.Class, Pods: d.Pods, Message: "no pool is ready"})
	}
	return out
}

// hears does what Effects does a second after pools or offerings have changed, and reports whether they had.
func (w *world) hears() bool {
	select {
	case <-w.parts.Triggers.OfferingsChanged():
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Changed()
			for l.TickPods(now.Add(backoff.First)) {
			}
		})
		return true
	default:
		return false
	}
}

// A pool becomes ready after the plan has read it and before its pods are refused: they are planned for again, and not only at the next
// change.
func TestPoolsThatBecomeReadyWhileAPlanIsMade(t *testing.T) {
	w, _ := guarded(t, spending.Config{}) // nothing runs: the test does what Effects would
	w.planner = &early{w: w}
	w.submit(1)
	w.plans()
	if !w.reservations.Refused("u0") {
		t.Fatal("the plan has not refused the pod")
	}
	if !w.hears() {
		t.Fatal("the change is forgotten: the refused pod waits for the next one")
	}
	w.plans()
	if n := len(w.bought()); n != 1 {
		t.Errorf("%d instances, want 1", n)
	}
}
