package reservations

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Ledger is the ledger behind a lock. The plugins call it in the scheduling cycle, so it never waits: no other call is made under its
// lock. Gated, Knows, Watches, Refused and Unwatched are O(1). The cost of the other calls in a cycle grows not with the cluster, but with the
// number of reservations: Submit and Adopt read those that are kept for the pod's owner, Assume, Unassume and Settled those of the pod's node
// and group, Object those of the node, and Apart, once in the cycle of a pod that is not pinned, the classes that may conflict with the pod's. Where
// one is added to those of a class or removed, pointers to the others of the class are moved: tens of microseconds with 50,000. Gate, which is
// asked only where its reason is logged, counts the pods of the class that wait before the pod.
//
// What is due each second, and what follows a change of offerings, is done in pieces, as is reading a long queue; cycles wait for one piece. A plan
// is written in one step, in time proportional to its pods. BenchmarkGrowth (test/bench) measures all of this. A panic under the lock ends the
// process: the ledger would be half changed, and the next start rebuilds its content.
//
// Lock order: the scheduling queue's lock is taken before that of Ledger (PreEnqueue), which never calls out. PreEnqueue also changes the ledger
// (Adopt). If that opens gates, the goroutine that waits on Wake activates the pods: the queue's lock is not free here.
type Ledger struct {
	clock clock.PassiveClock
	wake  chan struct{}
	idle  atomic.Bool // the ledger has neither a node nor a pod
	bare  atomic.Bool // the ledger has no node

	mu     sync.RWMutex
	ledger *ledger.Ledger
	later  map[types.UID]Deferred // pods that preemption may help first, by UID
	// taken holds the pods that the scheduler has assumed, until the informer shows them bound or deleted: in the informer they still look
	// pending.
	taken map[types.UID]bool
	// ended and endedBefore hold the pods that in this minute and the one before have ended or been bound, and so never need a node again: a
	// scheduling cycle that began earlier may still submit such a pod, and no event would ever withdraw that.
	ended, endedBefore map[types.UID]bool
	endedAt            time.Time
}

// Deferred is a pod that preemption may help first.
type Deferred struct {
	Ref   capacity.PodRef
	Class *capacity.Class
	at    time.Time // when preemption has had its time, and Due returns the pod
}

// preemptionTry is how long preemption may try before a node is launched for a pod that prefers preemption.
const preemptionTry = 2 * time.Second

// New returns an empty ledger.
func New(c clock.PassiveClock) *Ledger {
	r := &Ledger{clock: c, wake: make(chan struct{}, 1), ledger: ledger.New(), later: map[types.UID]Deferred{}, taken: map[types.UID]bool{}, ended: map[types.UID]bool{}}
	r.idle.Store(true)
	r.bare.Store(true)
	return r
}

// SetPatience sets how long pods wait for nodes that don't appear. Call it before anything runs.
func (r *Ledger) SetPatience(p ledger.Patience) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ledger.SetPatience(p)
}

// Summary returns the ledger in numbers.
func (r *Ledger) Summary() (out ledger.Summary) {
	r.Read(func(l ledger.Reader) { out = l.Summary() })
	return out
}

// Step runs f on the ledger, and wakes the goroutine that carries out effects when there are some.
func (r *Ledger) Step(f func(l *ledger.Ledger, now time.Time)) {
	defer panics.NotCaught()
	r.mu.Lock()
	f(r.ledger, r.clock.Now())
	pending := r.ledger.Pending()
	r.idle.Store(r.ledger.Empty())
	r.bare.Store(r.ledger.NoNodes())
	r.mu.Unlock()
	if !pending {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Wake receives when there are effects to take.
func (r *Ledger) Wake() <-chan struct{} { return r.wake }

// Now returns the time of the ledger's clock.
func (r *Ledger) Now() time.Time { return r.clock.Now() }

// Take returns the effects of the steps since the last call.
func (r *Ledger) Take() ledger.Effects {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Take()
}

// Read runs f, which asks the ledger.
func (r *Ledger) Read(f func(l ledger.Reader)) {
	r.query(func(l *ledger.Ledger) { f(l) })
}

// query runs f beside other readers. f must not change what they see.
func (r *Ledger) query(f func(l *ledger.Ledger)) {
	defer panics.NotCaught()
	r.mu.RLock()
	defer r.mu.RUnlock()
	f(r.ledger)
}

// Idle reports whether the ledger is empty: then no query below objects to anything.
func (r *Ledger) Idle() bool { return r.idle.Load() }

// Unwatched reports whether the ledger has no nodes, so that nothing is reserved or cordoned: however many pods wait or were refused, pods
// that the ledger doesn't know may go anywhere.
func (r *Ledger) Unwatched() bool { return r.bare.Load() }

// Submit is called for a pod that no node can take. wait: capacity for it is planned, or will be; otherwise why says what prevents that.
func (r *Ledger) Submit(ref capacity.PodRef, c *capacity.Class) (wait bool, why string) {
	return r.SubmitRefused(ref, c, func(string) (string, string) { return "", "" })
}

// SubmitRefused is Submit with a func that returns the plugin that refused the pod on a node and its reason; empty: none did.
func (r *Ledger) SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(node string) (plugin, reason string)) (wait bool, why string) {
	r.Step(func(l *ledger.Ledger, now time.Time) {
		if r.hasEnded(ref.UID) {
			why = "the pod has ended, or has a node"
			return
		}
		var st ledger.State
		st, why = l.SubmitRefused(ref, c, by, now)
		wait = st != ledger.Refused || l.PlannedSoon(ref.UID, now)
	})
	return wait, why
}

// SubmitUnassumed is Submit unless the scheduler has found a node for the pod meanwhile.
func (r *Ledger) SubmitUnassumed(ref capacity.PodRef, c *capacity.Class) {
	r.Step(func(l *ledger.Ledger, now time.Time) {
		if !r.taken[ref.UID] && !r.hasEnded(ref.UID) {
			l.Submit(ref, c, now)
		}
	})
}

// SubmitUnknown is Submit unless the pod has been assumed or is in the ledger.
func (r *Ledger) SubmitUnknown(ref capacity.PodRef, c *capacity.Class) {
	r.Step(func(l *ledger.Ledger, now time.Time) {
		if !r.taken[ref.UID] && !r.hasEnded(ref.UID) && !l.Knows(ref.UID) {
			l.Submit(ref, c, now)
		}
	})
}

// Join queues a member of a gang and returns its state; Assumed: it has a node, Unknown: it has ended.
func (r *Ledger) Join(ref capacity.PodRef, c *capacity.Class) (st ledger.State) {
	r.Step(func(l *ledger.Ledger, now time.Time) {
		switch {
		case r.taken[ref.UID]:
			st = ledger.Assumed
		case !r.hasEnded(ref.UID):
			st = l.Join(ref, c, now)
		}
	})
	return st
}

// SubmitLater notes a pod that preemption may help first: Due returns it once preemption has had its time.
func (r *Ledger) SubmitLater(ref capacity.PodRef, c *capacity.Class) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.later[ref.UID]; !ok {
		r.later[ref.UID] = Deferred{Ref: ref, Class: c, at: r.clock.Now().Add(preemptionTry)}
	}
}

// Withdraw removes all demand and reservations of a pod that can't be planned for any more. Should that change, its next scheduling cycle
// submits it again.
func (r *Ledger) Withdraw(uid types.UID) {
	r.mu.Lock()
	delete(r.later, uid)
	r.mu.Unlock()
	if r.Knows(uid) {
		r.Step(func(l *ledger.Ledger, _ time.Time) { l.Gone(uid) })
	}
}

// Due returns the pods for which preemption has had its time, ordered by UID.
func (r *Ledger) Due() []Deferred {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	var out []Deferred
	for uid, one := range r.later {
		if !now.Before(one.at) {
			delete(r.later, uid)
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Deferred) int { return cmp.Compare(a.Ref.UID, b.Ref.UID) })
	return out
}

// Forget forgets what is remembered about a pod outside the ledger. ended: it will never need a node again.
func (r *Ledger) Forget(uid types.UID, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.later, uid)
	delete(r.taken, uid)
	if !ended {
		return
	}
	if now := r.clock.Now(); now.Sub(r.endedAt) > endedMemory {
		r.endedBefore, r.ended, r.endedAt = r.ended, map[types.UID]bool{}, now
	}
	r.ended[uid] = true
}

// endedMemory is longer than any scheduling cycle.
const endedMemory = time.Minute

func (r *Ledger) hasEnded(uid types.UID) bool { return r.ended[uid] || r.endedBefore[uid] }

// Free reports whether the pod is neither assumed nor in the ledger.
func (r *Ledger) Free(uid types.UID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return !r.taken[uid] && !r.ledger.Knows(uid)
}

// Gate is Gated with what the pod waits for.
func (r *Ledger) Gate(uid types.UID) (closed bool, why string) {
	if r.Idle() {
		return false, ""
	}
	r.query(func(l *ledger.Ledger) { closed, why = l.Gate(uid) })
	return closed, why
}

// Gated reports whether the pod has to stay out of the scheduling queue. held: the ledger doesn't have the pod, and capacity is reserved for the next
// pods of its owner, so Adopt may find some for it. Gated is O(1): the queue may ask about all waiting pods at once.
func (r *Ledger) Gated(pod *corev1.Pod) (closed, held bool) {
	if r.Idle() {
		return false, false
	}
	r.query(func(l *ledger.Ledger) {
		closed = l.Gated(pod.UID)
		held = !closed && !l.Knows(pod.UID) && l.Holds(objects.Controller(pod), objects.DeploymentOf(pod))
	})
	return closed, held
}

// Pin returns the only node that the pod may use. If node is empty, it may use any, unless wait says what a planned pod waits for.
func (r *Ledger) Pin(uid types.UID) (node, wait string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ledger.Pin(uid)
}

// Watches reports whether Object may refuse pods on the node.
func (r *Ledger) Watches(node string) (yes bool) {
	r.Read(func(l ledger.Reader) { yes = l.Watches(node) })
	return yes
}

// Knows reports whether the pod is planned for, waits for a plan, or was refused one.
func (r *Ledger) Knows(uid types.UID) (yes bool) {
	if r.Idle() {
		return false
	}
	r.Read(func(l ledger.Reader) { yes = l.Knows(uid) })
	return yes
}

// Adopt gives a new pod capacity that is reserved for its owner's next pods; false: there is none.
func (r *Ledger) Adopt(ref capacity.PodRef, c *capacity.Class) (got bool) {
	if r.Idle() {
		return false
	}
	expects := false
	if r.Read(func(l ledger.Reader) { expects = l.Expects(c) }); !expects {
		return false
	}
	r.Step(func(l *ledger.Ledger, now time.Time) {
		got = !r.taken[ref.UID] && !r.hasEnded(ref.UID) && l.Adopt(ref, c, now)
	})
	return got
}

// Apart returns the planned classes whose pods must not share a node with the pod, which is of class c. preempts: the pod could preempt pods of a
// lower priority, so classes of a lower priority are left out. So they are for a refused pod, which has no plan to wait for.
func (r *Ledger) Apart(uid types.UID, c *capacity.Class, preempts bool) (out map[capacity.ClassKey]bool) {
	r.Read(func(l ledger.Reader) {
		out = l.Apart(c, preempts || l.Refused(uid) && !l.PlannedSoon(uid, r.Now()))
	})
	return out
}

// Object returns why the pod may not go to the node as far as reservations, cordons and early binding are concerned, or nil (see ledger.Object).
func (r *Ledger) Object(node string, ask *ledger.Ask, on ledger.Amounts) (err error) {
	r.Read(func(l ledger.Reader) { err = l.Object(node, ask, on) })
	return err
}

// Refused reports whether no plan had capacity for the pod.
func (r *Ledger) Refused(uid types.UID) (yes bool) {
	r.Read(func(l ledger.Reader) { yes = l.Refused(uid) })
	return yes
}

// Unplanned reports whether the pod waits and has no reservation.
func (r *Ledger) Unplanned(uid types.UID) (yes bool) {
	r.Read(func(l ledger.Reader) { yes = l.Unplanned(uid) })
	return yes
}

// TurnAway remembers a pod that Object kept off the node: the ledger activates it when that may have changed.
func (r *Ledger) TurnAway(node string, ref capacity.PodRef, daemon bool) {
	r.Step(func(l *ledger.Ledger, _ time.Time) { l.TurnAway(node, ref, daemon) })
}

// Assume records that the scheduler has assumed the pod on the node, or returns why it must not.
func (r *Ledger) Assume(uid types.UID, node string, daemon bool) (err error) {
	r.Step(func(l *ledger.Ledger, _ time.Time) {
		if err = l.Assume(uid, node, daemon); err == nil {
			r.taken[uid] = true
			delete(r.later, uid)
		}
	})
	return err
}

// Unassume records that an assumed pod was not bound.
func (r *Ledger) Unassume(uid types.UID, node string) {
	r.Step(func(l *ledger.Ledger, now time.Time) {
		l.Unassume(uid, node, now)
		delete(r.taken, uid)
	})
}

// Settled records that the pod was bound.
func (r *Ledger) Settled(uid types.UID, node string) {
	r.Step(func(l *ledger.Ledger, _ time.Time) { podsBound.WithLabelValues(string(l.Settled(uid, node))).Inc() })
}

// Awaited reports whether pods are planned for the claim's node that have not been bound yet.
func (r *Ledger) Awaited(claim string) (yes bool) {
	r.Read(func(l ledger.Reader) { yes = l.Awaited(claim) })
	return yes
}

// Fence cordons the node in the ledger. It returns false if pods are planned there or are being bound.
func (r *Ledger) Fence(node string) (ok bool) {
	r.Step(func(l *ledger.Ledger, _ time.Time) { ok = l.Fence(node) })
	return ok
}

// Unfence ends a cordon.
func (r *Ledger) Unfence(node string) {
	r.Step(func(l *ledger.Ledger, _ time.Time) { l.Unfence(node) })
}

// TakeRejected returns the pods that the filters have refused on nodes launched for them, since the last call.
func (r *Ledger) TakeRejected() (out []ledger.Rejected) {
	some := false
	if r.Read(func(l ledger.Reader) { some = l.HasRejected() }); some {
		r.Step(func(l *ledger.Ledger, _ time.Time) { out = l.TakeRejected() })
	}
	return out
}

// Keeps returns for which of the claims capacity is reserved on their nodes, or pods are being bound there.
func (r *Ledger) Keeps(claims []string) (out map[string]bool) {
	r.Read(func(l ledger.Reader) { out = l.Keeps(claims) })
	return out
}
