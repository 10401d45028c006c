package launch

import (
	"context"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"k8s.io/apimachinery/pkg/util/wait"
)

// early is a planner that sees nothing to buy the first time, while pools change.
type early struct {
	triggers     *provisioning.Triggers
	reservations *reservations.Ledger
	plans        int
}

func (e *early) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	if e.plans++; e.plans > 1 {
		return plain{}.Plan(v, opts)
	}
	// Effects hears of a change, here before the plan has refused any pod.
	e.triggers.Changed()
	_ = wait.PollUntilContextTimeout(context.Background(), time.Millisecond, 20*time.Second, true, func(context.Context) (heard bool, _ error) {
		return len(e.triggers.OfferingsChanged()) == 0, nil
	})
	e.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Reopen(now) })
	out := &capacity.Plan{}
	for _, d := range v.Demand {
		out.Refused = append(out.Refused, capacity.Refusal{Class: d.Class, Pods: d.Pods, Message: "no pool is ready"})
	}
	return out
}

// A pool becomes ready after the plan has read it and before its pods are refused: they are planned for again, and not only at the next
// change.
func TestPoolsThatBecomeReadyWhileAPlanIsMade(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.planner = &early{triggers: w.parts.Triggers, reservations: w.reservations}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		w.launcher.Run(ctx)
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
