package launch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Reservations is the ledger behind a lock. The plugins call it in the scheduling cycle, so it never waits: no other call is made under its
// lock. The cost of a call in a cycle grows not with the cluster, but with the number of reservations: Gate and Pin count the pods of the
// pod's class that wait before it, Submit, Assume, Unassume and Settled read the reservations of that class, its node and its group, Object
// those of the node, and Apart, once in a cycle, all classes that have reservations. Submit and Unassume read all pods in the ledger when
// the node has changed after their gates opened. Gated, Knows, Watches, Refused and Unwatched are O(1). The launch controller's steps (Tick
// each second, the writing of a plan) read every pod and node in the ledger, and cycles wait for them. A panic under the lock ends the
// process: the ledger would be half changed, and the next start rebuilds its content.
//
// Lock order: the scheduling queue's lock is taken before that of Reservations (PreEnqueue), which never calls out.
type Reservations struct {
	clock clock.PassiveClock
	wake  chan struct{}
	idle  atomic.Bool
	bare  atomic.Bool // the ledger has no node

	mu     sync.RWMutex
	ledger *ledger.Ledger
	later  map[types.UID]deferred
	// taken holds the pods that the scheduler has assumed, until the informer shows them bound or deleted: in the informer they still look
	// pending.
	taken map[types.UID]bool
	// ended holds the pods of this minute and the one before that will never need a node again: a cycle that began before their end may
	// still submit one, and no event would ever withdraw that.
	ended, endedBefore map[types.UID]bool
	endedAt            time.Time
}

// deferred is a pod that preemption may help first.
type deferred struct {
	ref   capacity.PodRef
	class *capacity.Class
	at    time.Time
}

// preemptionTry is how long preemption may try before a node is launched for a pod that prefers preemption.
const preemptionTry = 2 * time.Second

// NewReservations returns Reservations with an empty ledger.
func NewReservations(c clock.PassiveClock) *Reservations {
	d := &Reservations{clock: c, wake: make(chan struct{}, 1), ledger: ledger.New(), later: map[types.UID]deferred{}, taken: map[types.UID]bool{}, ended: map[types.UID]bool{}}
	d.idle.Store(true)
	d.bare.Store(true)
	return d
}

// SetPatience sets how long pods wait for nodes that don't appear. Call it before anything runs.
func (d *Reservations) SetPatience(p ledger.Patience) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.SetPatience(p)
}

// Summary returns the ledger in numbers.
func (d *Reservations) Summary() (out ledger.Summary) {
	d.read(func(l *ledger.Ledger) { out = l.Summary() })
	return out
}

// Step runs f on the ledger and wakes effects when there are effects.
func (d *Reservations) Step(f func(l *ledger.Ledger, now time.Time)) {
	defer panics.NotCaught()
	d.mu.Lock()
	f(d.ledger, d.clock.Now())
	pending := d.ledger.Pending()
	d.idle.Store(d.ledger.Empty())
	d.bare.Store(d.ledger.NoNodes())
	d.mu.Unlock()
	if pending {
		d.poke()
	}
}

func (d *Reservations) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *Reservations) take() ledger.Effects {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Take()
}

// read runs f on the ledger, which f must not change.
func (d *Reservations) read(f func(l *ledger.Ledger)) {
	defer panics.NotCaught()
	d.mu.RLock()
	defer d.mu.RUnlock()
	f(d.ledger)
}

// Idle reports whether the ledger is empty: then no query below objects to anything.
func (d *Reservations) Idle() bool { return d.idle.Load() }

// Unwatched reports whether the ledger has no nodes, so that nothing is reserved or cordoned: however many pods wait or were refused, pods
// that the ledger doesn't know may go anywhere.
func (d *Reservations) Unwatched() bool { return d.bare.Load() }

// Submit is called for a pod that no node can take. wait: capacity for it is planned, or will be; otherwise why says what prevents that.
func (d *Reservations) Submit(ref capacity.PodRef, c *capacity.Class) (wait bool, why string) {
	return d.SubmitRefused(ref, c, func(string) (string, string) { return "", "" })
}

// SubmitRefused is Submit with a func that returns the plugin that refused the pod on a node and its reason; empty: none did.
func (d *Reservations) SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(node string) (plugin, reason string)) (wait bool, why string) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		if d.hasEnded(ref.UID) {
			why = "the pod has ended, or has a node"
			return
		}
		var st ledger.State
		st, why = l.Submit(ref, c, now)
		l.RejectedBy(ref.UID, by)
		wait = st != ledger.Refused || l.PlannedSoon(ref.UID, now)
	})
	return wait, why
}

// submitUntaken is Submit unless the scheduler has found a node for the pod meanwhile.
func (d *Reservations) submitUntaken(ref capacity.PodRef, c *capacity.Class) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		if !d.taken[ref.UID] && !d.hasEnded(ref.UID) {
			l.Submit(ref, c, now)
		}
	})
}

// submitFree is Submit unless the pod has been assumed or is in the ledger.
func (d *Reservations) submitFree(ref capacity.PodRef, c *capacity.Class) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		if !d.taken[ref.UID] && !d.hasEnded(ref.UID) && !l.Knows(ref.UID) {
			l.Submit(ref, c, now)
		}
	})
}

// join queues a member of a gang and returns its state; Assumed: it has a node, Unknown: it has ended.
func (d *Reservations) join(ref capacity.PodRef, c *capacity.Class) (st ledger.State) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		switch {
		case d.taken[ref.UID]:
			st = ledger.Assumed
		case !d.hasEnded(ref.UID):
			st = l.Join(ref, c, now)
		}
	})
	return st
}

// SubmitLater notes a pod that preemption may help first; see effects.later.
func (d *Reservations) SubmitLater(ref capacity.PodRef, c *capacity.Class) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.later[ref.UID]; !ok {
		d.later[ref.UID] = deferred{ref: ref, class: c, at: d.clock.Now().Add(preemptionTry)}
	}
}

// Withdraw removes all demand and reservations of a pod that can't be planned for any more. Should that change, its next scheduling cycle
// submits it again.
func (d *Reservations) Withdraw(uid types.UID) {
	d.mu.Lock()
	delete(d.later, uid)
	d.mu.Unlock()
	if d.Knows(uid) {
		d.Step(func(l *ledger.Ledger, _ time.Time) { l.Gone(uid) })
	}
}

// due returns the pods for which preemption has had its time, ordered by UID.
func (d *Reservations) due() []deferred {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	var out []deferred
	for uid, one := range d.later {
		if !now.Before(one.at) {
			delete(d.later, uid)
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b deferred) int { return compare(a.ref.UID, b.ref.UID) })
	return out
}

// over forgets what is remembered about a pod outside the ledger. ended: it will never need a node again.
func (d *Reservations) over(uid types.UID, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.later, uid)
	delete(d.taken, uid)
	if !ended {
		return
	}
	if now := d.clock.Now(); now.Sub(d.endedAt) > endedMemory {
		d.endedBefore, d.ended, d.endedAt = d.ended, map[types.UID]bool{}, now
	}
	d.ended[uid] = true
}

// endedMemory is longer than any scheduling cycle.
const endedMemory = time.Minute

func (d *Reservations) hasEnded(uid types.UID) bool { return d.ended[uid] || d.endedBefore[uid] }

// free reports whether the pod is neither assumed nor in the ledger.
func (d *Reservations) free(uid types.UID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return !d.taken[uid] && !d.ledger.Knows(uid)
}

// Gate reports whether the pod has to stay out of the scheduling queue, and what it waits for.
func (d *Reservations) Gate(uid types.UID) (closed bool, why string) {
	if d.Idle() {
		return false, ""
	}
	d.read(func(l *ledger.Ledger) { closed, why = l.Gate(uid) })
	return closed, why
}

// Gated is Gate without the reason, and O(1): it is called for every waiting pod at every new Node.
func (d *Reservations) Gated(uid types.UID) (closed bool) {
	if d.Idle() {
		return false
	}
	d.read(func(l *ledger.Ledger) { closed = l.Gated(uid) })
	return closed
}

// Pin returns the node that a planned pod has to use; see ledger.Pin.
func (d *Reservations) Pin(uid types.UID) (node, wait string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Pin(uid)
}

// Watches reports whether Object may refuse pods on the node.
func (d *Reservations) Watches(node string) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Watches(node) })
	return yes
}

// Knows reports whether the pod is planned for, waits for a plan, or was refused one.
func (d *Reservations) Knows(uid types.UID) (yes bool) {
	if d.Idle() {
		return false
	}
	d.read(func(l *ledger.Ledger) { yes = l.Knows(uid) })
	return yes
}

// Adopt gives a new pod capacity that is reserved for its owner's next pods; false: there is none.
func (d *Reservations) Adopt(ref capacity.PodRef, c *capacity.Class) (got bool) {
	if d.Idle() {
		return false
	}
	expects := false
	if d.read(func(l *ledger.Ledger) { expects = l.Expects(c) }); !expects {
		return false
	}
	d.Step(func(l *ledger.Ledger, now time.Time) {
		got = !d.taken[ref.UID] && !d.hasEnded(ref.UID) && l.Adopt(ref, c, now)
	})
	return got
}

// Apart returns the planned classes that must not share a node with c's pods; see ledger.Apart.
func (d *Reservations) Apart(c *capacity.Class) (out map[capacity.ClassKey]bool) {
	d.read(func(l *ledger.Ledger) { out = l.Apart(c) })
	return out
}

// Object returns why the pod may not go to the node, or ""; see ledger.Object.
func (d *Reservations) Object(node string, ask *ledger.Ask, on ledger.Amounts) (why string) {
	d.read(func(l *ledger.Ledger) { why = l.Object(node, ask, on) })
	return why
}

// Refused reports whether no plan had capacity for the pod.
func (d *Reservations) Refused(uid types.UID) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Refused(uid) })
	return yes
}

// unplanned reports whether the pod waits and has no reservation.
func (d *Reservations) unplanned(uid types.UID) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Unplanned(uid) })
	return yes
}

// TurnAway remembers a pod that was rejected on the node; see ledger.TurnAway.
func (d *Reservations) TurnAway(node string, ref capacity.PodRef, daemon bool) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { l.TurnAway(node, ref, daemon) })
}

// Assume records that the scheduler has assumed the pod on the node, or returns why it must not.
func (d *Reservations) Assume(uid types.UID, node string, daemon bool) (why string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) {
		if why = l.Assume(uid, node, daemon); why == "" {
			d.taken[uid] = true
			delete(d.later, uid)
		}
	})
	return why
}

// Unassume records that an assumed pod was not bound.
func (d *Reservations) Unassume(uid types.UID, node string) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		l.Unassume(uid, node, now)
		delete(d.taken, uid)
	})
}

// Settled records that the pod was bound.
func (d *Reservations) Settled(uid types.UID, node string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { podsBound.WithLabelValues(string(l.Settled(uid, node))).Inc() })
}

// Awaited reports whether pods wait for the claim's node; see ledger.Awaited.
func (d *Reservations) Awaited(claim string) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Awaited(claim) })
	return yes
}

// Fence cordons the node in the ledger. It returns false if pods are planned there or are being bound.
func (d *Reservations) Fence(node string) (ok bool) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { ok = l.Fence(node) })
	return ok
}

// Unfence ends a cordon.
func (d *Reservations) Unfence(node string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { l.Unfence(node) })
}

// takeRejected returns the pods that the filters have refused on nodes launched for them, since the last call.
func (d *Reservations) takeRejected() (out []ledger.Rejected) {
	some := false
	if d.read(func(l *ledger.Ledger) { some = l.HasRejected() }); some {
		d.Step(func(l *ledger.Ledger, _ time.Time) { out = l.TakeRejected() })
	}
	return out
}
