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

// Reservations is the ledger behind a lock. The plugins ask it from the scheduling cycle, so nothing it does waits: no call is made under its
// lock. What a cycle asks takes no longer in a larger cluster, but with what is promised to pods: Gate and Pin count the pods of the
// pod's class that wait before it, Submit, Assume, Unassume and Settled look at the promises of that class, its node and its group, Object
// at those of the node, and Apart, once in a cycle, at all classes that promises are kept for. Submit and Unassume look at all pods in
// the ledger when the node has changed under those that were let go. Gated, Knows, Watches, Refused and Unwatched are O(1). The steps of
// the launcher (Tick each second, the booking of a plan) look at every pod and node in the ledger, and cycles wait for them. A panic under
// the lock ends the process: the ledger would be half changed, and what it keeps is rebuilt at the next start.
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
	// taken are pods the scheduler has assumed, until the informer shows them bound or gone: to whoever looks at the
	// informer's pods they seem to wait still.
	taken map[types.UID]bool
	// ended are pods that will never need a node again, of this minute and the one before: a cycle that began before their end may
	// still ask for one, and nobody would ever take that back.
	ended, endedBefore map[types.UID]bool
	endedAt            time.Time
}

// deferred is a pod that preemption shall help first.
type deferred struct {
	ref   capacity.PodRef
	class *capacity.Class
	at    time.Time
}

// preemptionTry is how long preemption may try before a node is built for a pod that prefers it.
const preemptionTry = 2 * time.Second

// NewReservations returns Reservations with an empty ledger.
func NewReservations(c clock.PassiveClock) *Reservations {
	d := &Reservations{clock: c, wake: make(chan struct{}, 1), ledger: ledger.New(), later: map[types.UID]deferred{}, taken: map[types.UID]bool{}, ended: map[types.UID]bool{}}
	d.idle.Store(true)
	d.bare.Store(true)
	return d
}

// SetPatience says how long pods wait for what doesn't come. To be called before anything runs.
func (d *Reservations) SetPatience(p ledger.Patience) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ledger.SetPatience(p)
}

// Summary is the ledger in numbers.
func (d *Reservations) Summary() (out ledger.Summary) {
	d.read(func(l *ledger.Ledger) { out = l.Summary() })
	return out
}

// Step runs f on the ledger and tells the motor when there are effects.
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

// Idle says that the ledger is empty: no query below would object to anything.
func (d *Reservations) Idle() bool { return d.idle.Load() }

// Unwatched says that there is no node that anything is promised or kept on: however many pods wait or were refused, those that
// the ledger doesn't know may go anywhere.
func (d *Reservations) Unwatched() bool { return d.bare.Load() }

// Submit is called for a pod that no node can take. wait: capacity for it is planned, or will be; otherwise why says what
// stands in the way.
func (d *Reservations) Submit(ref capacity.PodRef, c *capacity.Class) (wait bool, why string) {
	return d.SubmitRefused(ref, c, func(string) (string, string) { return "", "" })
}

// SubmitRefused is Submit with what the filters said of a node: the plugin and its reason; empty: nothing.
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

// submitFree is Submit unless anything has been done about the pod meanwhile.
func (d *Reservations) submitFree(ref capacity.PodRef, c *capacity.Class) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		if !d.taken[ref.UID] && !d.hasEnded(ref.UID) && !l.Knows(ref.UID) {
			l.Submit(ref, c, now)
		}
	})
}

// join queues a member of a gang and answers the state it is in; Assumed: it has a node, Unknown: it has ended.
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

// SubmitLater takes a pod down that preemption shall help first; see Motor.later.
func (d *Reservations) SubmitLater(ref capacity.PodRef, c *capacity.Class) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.later[ref.UID]; !ok {
		d.later[ref.UID] = deferred{ref: ref, class: c, at: d.clock.Now().Add(preemptionTry)}
	}
}

// Withdraw takes back whatever was asked and planned for a pod that can't be planned for any more. Should that change, its next cycle
// asks again.
func (d *Reservations) Withdraw(uid types.UID) {
	d.mu.Lock()
	delete(d.later, uid)
	d.mu.Unlock()
	if d.Knows(uid) {
		d.Step(func(l *ledger.Ledger, _ time.Time) { l.Gone(uid) })
	}
}

// due are the pods that preemption has had its time for, in a fixed order.
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

// over forgets what is remembered of a pod beside the ledger. ended: it will never need a node again.
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

// free says that nobody has done anything about the pod yet.
func (d *Reservations) free(uid types.UID) bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return !d.taken[uid] && !d.ledger.Knows(uid)
}

// Gate says whether the pod has to stay out of the scheduling queue and what it waits for.
func (d *Reservations) Gate(uid types.UID) (closed bool, why string) {
	if d.Idle() {
		return false, ""
	}
	d.read(func(l *ledger.Ledger) { closed, why = l.Gate(uid) })
	return closed, why
}

// Gated is Gate without the reason, and O(1): it is asked about every waiting pod at every new Node.
func (d *Reservations) Gated(uid types.UID) (closed bool) {
	if d.Idle() {
		return false
	}
	d.read(func(l *ledger.Ledger) { closed = l.Gated(uid) })
	return closed
}

// Pin hands a planned pod its node; see ledger.Pin.
func (d *Reservations) Pin(uid types.UID) (node, wait string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ledger.Pin(uid)
}

// Watches says whether Object has anything to say about the node.
func (d *Reservations) Watches(node string) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Watches(node) })
	return yes
}

// Knows says whether the pod is planned for, waits for a plan, or was refused one.
func (d *Reservations) Knows(uid types.UID) (yes bool) {
	if d.Idle() {
		return false
	}
	d.read(func(l *ledger.Ledger) { yes = l.Knows(uid) })
	return yes
}

// Adopt gives a pod that comes for the first time room that is held for its owner's next pods; false: there is none.
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

// Apart are the classes planned somewhere that must not share a node with c's pods; see ledger.Apart.
func (d *Reservations) Apart(c *capacity.Class) (out map[capacity.ClassKey]bool) {
	d.read(func(l *ledger.Ledger) { out = l.Apart(c) })
	return out
}

// Object says why the pod may not go to the node, or ""; see ledger.Object.
func (d *Reservations) Object(node string, ask *ledger.Ask, on ledger.Amounts) (why string) {
	d.read(func(l *ledger.Ledger) { why = l.Object(node, ask, on) })
	return why
}

// Refused says that there was no room for the pod in any plan.
func (d *Reservations) Refused(uid types.UID) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Refused(uid) })
	return yes
}

// unplanned says that no room is kept for a pod that waits.
func (d *Reservations) unplanned(uid types.UID) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Unplanned(uid) })
	return yes
}

// TurnAway remembers a pod that the node refused; see ledger.TurnAway.
func (d *Reservations) TurnAway(node string, ref capacity.PodRef, daemon bool) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { l.TurnAway(node, ref, daemon) })
}

// Assume says that the scheduler has assumed the pod on the node. It answers why it must not.
func (d *Reservations) Assume(uid types.UID, node string, daemon bool) (why string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) {
		if why = l.Assume(uid, node, daemon); why == "" {
			d.taken[uid] = true
			delete(d.later, uid)
		}
	})
	return why
}

// Unassume says that an assumed pod was not bound.
func (d *Reservations) Unassume(uid types.UID, node string) {
	d.Step(func(l *ledger.Ledger, now time.Time) {
		l.Unassume(uid, node, now)
		delete(d.taken, uid)
	})
}

// Settled says that the pod's binding was written.
func (d *Reservations) Settled(uid types.UID, node string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { podsBound.WithLabelValues(string(l.Settled(uid, node))).Inc() })
}

// Awaited says that pods wait for the claim's node; see ledger.Awaited.
func (d *Reservations) Awaited(claim string) (yes bool) {
	d.read(func(l *ledger.Ledger) { yes = l.Awaited(claim) })
	return yes
}

// Fence keeps every pod off the node from now on; false when something is planned for it or on its way there.
func (d *Reservations) Fence(node string) (ok bool) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { ok = l.Fence(node) })
	return ok
}

// Unfence ends a fence.
func (d *Reservations) Unfence(node string) {
	d.Step(func(l *ledger.Ledger, _ time.Time) { l.Unfence(node) })
}

// takeRejected are the pods that the filters refused on nodes built for them, since the last call.
func (d *Reservations) takeRejected() (out []ledger.Rejected) {
	some := false
	if d.read(func(l *ledger.Ledger) { some = l.HasRejected() }); some {
		d.Step(func(l *ledger.Ledger, _ time.Time) { out = l.TakeRejected() })
	}
	return out
}
