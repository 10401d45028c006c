package launch

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Ownership knows whether anything may be launched now: whether this process owns nodes and claims, and has read them.
type Ownership struct {
	claims       *claimCache
	reservations *reservations.Ledger
	gatherer     *provisioning.Gatherer
	refusals     *provisioning.Refusals
	cleanup      *cleanup
	triggers     *provisioning.Triggers
	calls        *calls

	holds    func() error // returns why nothing may be launched because another controller owns nodes and claims, or nil
	wasHeld  atomic.Bool  // another controller has owned nodes and claims since they were last read
	troubled atomic.Bool  // demand was refused because the intent log is broken
}

var errUnread = errors.New("not all of the pools, node classes and overlays have been read yet")

// holdPoll is how often to check whether another controller still owns nodes and claims.
const holdPoll = time.Second

// Hold returns why nothing may be launched because another controller owns nodes and claims, or nil.
func (o *Ownership) Hold() error { return o.holds() }

// LogBroken hears that demand was refused because the intent log is broken. It is planned for again once that is over.
func (o *Ownership) LogBroken() { o.troubled.Store(true) }

// lookAtLog has the planner run again once the intent log is readable, if demand was refused because it wasn't.
func (o *Ownership) lookAtLog() {
	if o.troubled.Load() && o.claims.Problem() == nil {
		o.troubled.Store(false)
		o.triggers.Changed()
	}
}

// HoldChanged hears that another controller has begun or ceased to own nodes and claims.
func (o *Ownership) HoldChanged() {
	o.wasHeld.Store(true)
	o.triggers.Changed()
}

// TakesOver reports whether another controller owned nodes and claims until now, and the nodes that it has launched are not in the ledger yet
// (Readopt adds them). Until then nothing may be planned, because those nodes would be bought a second time; the planner tries again at once.
func (o *Ownership) TakesOver() bool {
	if !o.wasHeld.Load() {
		return false
	}
	o.triggers.Replan()
	return true
}

// free waits until no other controller owns nodes and claims. While it is known that one does, it calls held again and again, and refuses
// pods that need capacity, with the reason. It returns false if ctx ends first.
func (o *Ownership) free(ctx context.Context, held func()) bool {
	for why := o.Hold(); why != nil; why = o.Hold() {
		if !errors.Is(why, capacity.ErrOwnerUnknown) {
			held()
		}
		if waiting, _ := o.gatherer.Gather(ctx); len(waiting) > 0 {
			o.RefuseHeld(ctx, provisioning.UIDsOf(waiting), why)
		}
		if !o.calls.sleep(ctx, holdPoll) {
			return false
		}
	}
	return ctx.Err() == nil
}

// RefuseHeld refuses pods while launches are paused. They are planned for again when that is over (Changed), not before.
func (o *Ownership) RefuseHeld(ctx context.Context, uids []types.UID, why error) {
	o.refusals.Refuse(ctx, uids, "nothing can be launched: "+why.Error(), false)
	if o.Hold() == nil {
		o.triggers.Changed() // the pause was over before the pods were refused
	}
}

// pause waits until no other controller owns nodes and claims, and reports whether it had to wait.
func (o *Ownership) pause(ctx context.Context) (waited bool) {
	for o.Hold() != nil && o.calls.sleep(ctx, holdPoll) {
		waited = true
	}
	return waited
}

// held reports whether another controller owns nodes and claims now, so that a launch batch's next call must not be made. If so it fails the
// batch's claims. Their pods get the reason when they are planned for again.
func (o *Ownership) held(ctx context.Context, w *batch) bool {
	why := o.Hold()
	if why != nil {
		o.cleanup.fail(ctx, w.requester, w.claims, "HeldBack", why.Error(), true)
	}
	return why != nil
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
			o.triggers.Replan()
			return ok
		case <-patience.C():
			impatient = o.triggers.Demand()
			o.triggers.Replan()
		case <-impatient:
			o.unread(ctx)
		}
	}
}

// unread refuses the waiting pods because NodeClaims, pools or node classes can't be read. Nothing may be planned then, not even if only pools or
// classes are missing: what an earlier leader launched has not been resumed yet.
func (o *Ownership) unread(ctx context.Context) {
	waiting, _ := o.gatherer.Gather(ctx)
	if len(waiting) == 0 {
		return
	}
	err := o.claims.Problem()
	if err == nil {
		err = errUnread
	}
	o.refusals.Refuse(ctx, provisioning.UIDsOf(waiting), "nothing can be launched: "+err.Error(), true)
}
