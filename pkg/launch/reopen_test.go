package launch

import (
	"context"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// early is a planner that sees nothing to buy the first time, while pools change.
type early struct {
	motor *Motor
	plans int
}

func (e *early) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	if e.plans++; e.plans > 1 {
		return plain{}.Plan(v, opts)
	}
	// What serve does when it hears of a change, before this plan comes to anything.
	e.motor.changes.Add(1)
	e.motor.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Reopen(now) })
	out := &capacity.Plan{}
	for _, d := range v.Demand {
		out.Refused = append(out.Refused, capacity.Refusal{Class: d.Class, Pods: d.Pods, Message: "no pool is ready"})
	}
	return out
}

// A pool becomes ready between the look at it and the word that it isn't: the pods are planned for again, and not only when
// something changes next.
func TestPoolsThatBecomeReadyWhileAPlanIsMade(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.motor.planner = &early{motor: w.motor}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.motor.Run(ctx)
		close(done)
	}()
	defer func() {
		cancel()
		<-done
	}()
	w.submit(1)
	w.allBound(1)
	w.exactly(1)
}
