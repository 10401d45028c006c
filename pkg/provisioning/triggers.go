package provisioning

import (
	"sync/atomic"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Triggers wake controllers: they hold what has happened since a controller last looked, not how often. Handlers of informers and
// controllers call them, and return at once. Safe for concurrent use.
type Triggers struct {
	reservations *reservations.Ledger

	plan    chan struct{} // demand is waiting
	changed chan struct{} // pools, offerings or node classes changed
	ordered chan struct{} // a standalone NodeClaim has appeared or changed
	counted chan struct{} // static pools may have too few nodes or too many
	changes atomic.Uint64 // how often pools, offerings or node classes have changed
	room    atomic.Bool   // capacity has appeared since it was last offered
	freed   atomic.Bool   // pods may leave a launched instance for that capacity
	// daemonsMoved: DaemonSets or the requests of their pods have changed since capacity was last reserved for them.
	daemonsMoved atomic.Bool
	chunks       atomic.Bool // chunks of CapacityBuffers may lack capacity
	gangsAnew    atomic.Bool // pools or offerings have changed since gangs were refused
}

// newTriggers returns Triggers of which none has fired.
func newTriggers(r *reservations.Ledger) *Triggers {
	one := func() chan struct{} { return make(chan struct{}, 1) }
	return &Triggers{reservations: r, plan: one(), changed: one(), ordered: one(), counted: one()}
}

// Replan wakes the planner to look at queued pods.
func (t *Triggers) Replan() {
	select {
	case t.plan <- struct{}{}:
	default:
	}
}

// Recount makes sure that static pools are counted.
func (t *Triggers) Recount() {
	select {
	case t.counted <- struct{}{}:
	default:
	}
}

// ClaimOrdered makes sure that standalone NodeClaims are looked at.
func (t *Triggers) ClaimOrdered() {
	select {
	case t.ordered <- struct{}{}:
	default:
	}
}

// Changed hears that pools, node classes or offerings have changed: refused pods may fit now.
func (t *Triggers) Changed() {
	t.Recount()
	t.changes.Add(1)
	t.reopen()
}

// reopenIfChanged returns a func to be called once pods have been refused. If pools, offerings or node classes have changed between the two calls,
// refused pods are planned for again: a change before their refusal could not do that.
func (t *Triggers) reopenIfChanged() func() {
	changes := t.changes.Load()
	return func() {
		if t.changes.Load() != changes {
			t.reopen()
		}
	}
}

// reopen makes refused pods be planned for again.
func (t *Triggers) reopen() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// RoomAppeared hears that a node has more free capacity: a pod has ended or was resized downwards, a node was added, has grown, or is schedulable
// again. Pods that wait for an instance may use that capacity instead. Safe for concurrent use; returns at once.
func (t *Triggers) RoomAppeared() { t.CapacityAppeared(true) }

// CapacityAppeared is RoomAppeared with the kind of capacity. For freed capacity pods may leave an instance that is already launched. For what
// a new managed node turns out to have beyond its plan they may not: the nodes launched with it will register in a moment, and would have
// been launched in vain.
func (t *Triggers) CapacityAppeared(freed bool) {
	if t.reservations.Idle() {
		return
	}
	waits := false
	t.reservations.Read(func(l ledger.Reader) { waits = l.Waits(freed) })
	if waits {
		if freed {
			t.freed.Store(true)
		}
		t.room.Store(true)
		t.Replan()
	}
}

// DaemonsChanged hears that DaemonSets have been added or removed, or that the requests of their next pods have changed, so that
// the capacity reserved for them on nodes in flight is adjusted. frees: refused pods may fit now. A pod that no longer fits on its node in
// flight is rejected by the filters in its own scheduling cycle and planned for again.
func (t *Triggers) DaemonsChanged(frees bool) {
	if t.reservations.Idle() {
		return
	}
	t.daemonsMoved.Store(true)
	t.Replan()
	if frees {
		t.changes.Add(1)
		t.reopen()
	}
}

// LookAfterChunks makes sure that chunks of CapacityBuffers are looked at.
func (t *Triggers) LookAfterChunks() {
	t.chunks.Store(true)
	t.Replan()
}

// Demand receives when demand may be waiting.
func (t *Triggers) Demand() <-chan struct{} { return t.plan }

// OfferingsChanged receives when pools, offerings or node classes have changed.
func (t *Triggers) OfferingsChanged() <-chan struct{} { return t.changed }

// StandaloneClaims receives when a standalone NodeClaim has appeared or changed.
func (t *Triggers) StandaloneClaims() <-chan struct{} { return t.ordered }

// StaticPools receives when static pools may have too few nodes or too many.
func (t *Triggers) StaticPools() <-chan struct{} { return t.counted }
