package launch

import (
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Ownership knows whether anything may be launched now: whether this process owns nodes and claims, and has read them.
type Ownership struct {
	claims       *claimCache
	reservations *reservations.Ledger
	gatherer     *gatherer
	refusals     *refusals
	cleanup      *cleanup
	triggers     *Triggers
	calls        *calls

	hold     func() string // why nothing may be launched because another controller owns nodes and claims; "" otherwise
	wasHeld  atomic.Bool   // another controller has owned nodes and claims since they were last read
	troubled atomic.Bool   // demand was refused because the intent log is broken
}

// holdPoll is how often to check whether another controller still owns nodes and claims.
const holdPoll = time.Second

// HoldChanged hears that another controller has begun or ceased to own nodes and claims.
func (o *Ownership) HoldChanged() {
	o.wasHeld.Store(true)
	o.triggers.Changed()
}

// takesOver reports whether another controller owned nodes and claims until now, and what it has launched hasn't been taken over (readopt).
// Nothing may be planned before, because it would be bought a second time; the planner looks again at once.
func (o *Ownership) takesOver() bool {
	if !o.wasHeld.Load() {
		return false
	}
	o.triggers.replan()
	return true
}

// free waits until no other controller owns nodes and claims. Pods that need capacity meanwhile are refused with the reason.
func (o *Ownership) free(ctx context.Context) bool {
	for why := o.hold(); why != ""; why = o.hold() {
		if waiting, _ := o.gatherer.gather(ctx); len(waiting) > 0 {
			o.refuseHeld(ctx, uidsOf(waiting), why)
		}
		if !o.calls.sleep(ctx, holdPoll) {
			return false
		}
	}
	return ctx.Err() == nil
}

// refuseHeld refuses pods while launches are paused. They are planned for again when that is over (Changed), not before.
func (o *Ownership) refuseHeld(ctx context.Context, uids []types.UID, why string) {
	o.refusals.refuse(ctx, uids, "nothing can be launched: "+why, false)
	if o.hold() == "" {
		o.triggers.Changed() // it was over before they were refused
	}
}

// pause waits until no other controller owns nodes and claims, and reports whether it had to wait.
func (o *Ownership) pause(ctx context.Context) (waited bool) {
	for o.hold() != "" && o.calls.sleep(ctx, holdPoll) {
		waited = true
	}
	return waited
}

// held fails the claims of a launch batch whose next call must not be made because another controller owns nodes and claims now. Their pods
// learn the reason when they are planned for again.
func (o *Ownership) held(ctx context.Context, w *batch) bool {
	why := o.hold()
	if why != "" {
		o.cleanup.fail(ctx, w.claims, "HeldBack", why, true)
	}
	return why != ""
}

// readLog waits until the claims have been read.
func (o *Ownership) readLog(ctx context.Context) bool {
	read := make(chan bool, 1)
	o.calls.wg.Go(func() { read <- o.claims.WaitForSync(ctx) })
	patience := o.calls.clock.NewTimer(logPatience)
	defer patience.Stop()
	var impatient <-chan struct{}
	for {
		select {
		case ok := <-read:
			// Pods that were gated meanwhile still wait for their plan.
			o.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now) })
			o.triggers.replan()
			return ok
		case <-patience.C():
			impatient = o.triggers.plan
			o.triggers.replan()
		case <-impatient:
			o.unread(ctx)
		}
	}
}

// unread refuses the waiting pods because the log can't be read. Nothing may be planned without it, not even when the claims are there and
// only pools or classes are missing: what an earlier leader launched has not been resumed yet.
func (o *Ownership) unread(ctx context.Context) {
	waiting, _ := o.gatherer.gather(ctx)
	if len(waiting) == 0 {
		return
	}
	why := o.claims.Problem()
	if why == "" {
		why = "not all of the pools, node classes and overlays have been read yet"
	}
	o.refusals.refuse(ctx, uidsOf(waiting), "nothing can be launched: "+why, true)
}
