package bookings

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// KeptFor is how long capacity is kept for the pods of a request once its status says that it has capacity. If that status can't be
// written, nobody learns that pods may come: the capacity is kept for as long, and then the request is given up.
const KeptFor = 10 * time.Minute

// MostPods bounds the pods of one request.
const MostPods = 10_000

// Request is a ProvisioningRequest that wants capacity, or has it.
type Request struct {
	UID             types.UID
	Namespace, Name string
	// Sets are its pods; none: its templates were deleted after its status said that it has capacity.
	Sets []Set
	// Buys: nodes may be launched for it.
	Buys bool
	// Until is when its booking ends; zero: it has not been told that it has capacity.
	Until time.Time
}

// Set is a number of pods of one class.
type Set struct {
	Class *capacity.Class
	Pods  int
}

// Pods returns for how many pods capacity is asked.
func (r *Request) Pods() (n int) {
	for _, s := range r.Sets {
		n += s.Pods
	}
	return n
}

// Phase is what has become of a request.
type Phase int

// The phases of a request.
const (
	// Waiting: it has no capacity yet; it is tried again.
	Waiting Phase = iota
	// Launching: it has capacity on nodes of which some are not up yet.
	Launching
	// Ready: its pods may come.
	Ready
	// Consumed: all of its pods have come.
	Consumed
	// Revoked: its capacity has ended before any of its pods was there.
	Revoked
	// GivenUp: nodes were launched for it in vain too often.
	GivenUp
)

// State is what has become of a request, and why.
type State struct {
	Phase  Phase
	Bought bool // nodes were launched for it
	Tried  bool // capacity was looked for at least once
	Why    string
}

// Parts are the neighbours of Bookings. All are required.
type Parts struct {
	Clock        clock.PassiveClock
	Reservations *reservations.Ledger
	Plans        Plans
	Committer    provisioning.Committer
	Ownership    provisioning.Ownership
	// Problem is why nothing can be launched at all, or nil.
	Problem func() error
	// MayLaunch returns why nothing may be bought for pods of the namespace, or nil.
	MayLaunch func(namespace string) error
	// Replan wakes the planner, which calls Keep.
	Replan func()
	// Named returns how many pods that name the request have a node, or had one.
	Named func(namespace, request string) int
}

// Plans makes verified plans.
type Plans interface {
	View(ctx context.Context) (*provisioning.View, error)
	Fit(ctx context.Context, v *provisioning.View, demand []capacity.Demand) (*capacity.Plan, error)
	Buy(ctx context.Context, v *provisioning.View, demand []capacity.Demand) (*capacity.Plan, error)
}

// Bookings books capacity for ProvisioningRequests. Keep is for the planner's goroutine; the rest is safe for concurrent use and returns at
// once.
type Bookings struct {
	Parts
	changed func(news bool)
	due     atomic.Bool
	waits   time.Time            // since when requests wait because pods wait for a plan; only Keep uses it
	trials  map[types.UID]*trial // only Keep uses them

	mu     sync.Mutex
	wanted []Request
	// set: the requests are known. kept: all of them have been looked at since.
	set, kept bool
	states    map[types.UID]State
	early     map[string]bool // requests that have no capacity yet, by namespace/name
	// left are the nodes where bookings have ended, and when.
	left map[string]time.Time
}

// New returns Bookings without requests.
func New(p Parts) *Bookings {
	return &Bookings{Parts: p, changed: func(bool) {}, trials: map[types.UID]*trial{}, early: map[string]bool{}, left: map[string]time.Time{}}
}

// OnChange sets a func that hears when requests have been looked at; news: for one of them something has changed. Call it before anything runs.
func (b *Bookings) OnChange(f func(news bool)) { b.changed = f }

// Set sets all requests that want capacity or have it, in the order in which they are served. What is booked for other requests is free at
// once. It is called again from time to time.
func (b *Bookings) Set(all []Request) {
	b.mu.Lock()
	over := map[types.UID]bool{}
	for i := range b.wanted {
		over[b.wanted[i].UID] = true
	}
	look := len(all) > 0 || len(b.wanted) > 0 || !b.kept
	b.wanted, b.set = all, true
	b.early = map[string]bool{}
	for i := range all {
		if r := &all[i]; r.Until.IsZero() && b.states[r.UID].Phase != Ready {
			b.early[r.Namespace+"/"+r.Name] = true
		}
	}
	b.mu.Unlock()
	b.end(over, all)
	if look {
		b.due.Store(true)
		b.Replan()
	}
}

// Report returns what has become of the requests.
func (b *Bookings) Report() map[types.UID]State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states
}

// Known reports whether what was booked before this process began is booked again.
func (b *Bookings) Known() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}

// Unprovisioned reports whether a request has no capacity yet, as far as is known: also before the first Set. A plan for its pods would buy a
// second time what is launched for the request.
func (b *Bookings) Unprovisioned(namespace, request string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.set || b.early[namespace+"/"+request]
}

const (
	// mostTries bounds how many plans one pass makes: pods wait meanwhile.
	mostTries = 5
	// mostWait is how long requests wait at the most because pods wait for a plan.
	mostWait = 30 * time.Second
)

// Keep makes one pass, if it is due.
//
//  1. End what was booked for requests that were gone or over meanwhile.
//  2. See what has become of those that have capacity, and extend their reservations.
//  3. Look for capacity for the others, unless they back off or pods wait for a plan.
func (b *Bookings) Keep(ctx context.Context) {
	if !b.due.Load() || b.Ownership.Hold() != nil || b.Ownership.TakesOver() || b.Problem() != nil {
		return
	}
	b.due.Store(false)
	b.mu.Lock()
	wanted, set := b.wanted, b.set
	b.mu.Unlock()
	over := map[types.UID]bool{} // a booking may have been made while Set ended it
	for uid := range b.trials {
		over[uid] = true
	}
	b.end(over, wanted)
	for uid := range over {
		delete(b.trials, uid)
	}
	tries, states := b.tries(len(wanted)), map[types.UID]State{}
	all := true
	for i := range wanted {
		r := &wanted[i]
		t := b.trials[r.UID]
		if t == nil {
			t = &trial{}
			b.trials[r.UID] = t
		}
		if err := panics.Catch(ctx, "bookings", func() error { return b.advance(ctx, r, t, &tries) }); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Capacity for a ProvisioningRequest could not be planned; it is tried again", "provisioningRequest", klog.KRef(r.Namespace, r.Name))
			if r.Until.IsZero() {
				t.tried(b.Clock.Now(), err.Error())
			} // otherwise it keeps its capacity until a pass without an error finds it lost
		}
		all = all && (t.plans > 0 || t.phase != Waiting)
		states[r.UID] = State{Phase: t.phase, Bought: t.bought, Tried: t.plans > 0, Why: t.why}
	}
	b.mu.Lock()
	news := !maps.Equal(b.states, states)
	b.states, b.kept = states, b.kept || set && all
	b.mu.Unlock()
	b.changed(news)
}

// end ends the bookings of requests that are not wanted any more.
func (b *Bookings) end(over map[types.UID]bool, wanted []Request) {
	for i := range wanted {
		delete(over, wanted[i].UID)
	}
	for uid := range over {
		b.unbook(uid, false)
	}
}

// remembered is for how long the end of a booking counts for its nodes.
const remembered = 24 * time.Hour

// unbook ends a booking. giveBack: its nodes that have not registered yet are terminated.
func (b *Bookings) unbook(request types.UID, giveBack bool) {
	var on []string
	var at time.Time
	b.Reservations.Step(func(l *ledger.Ledger, now time.Time) {
		if s, ok := l.Booked(request); ok {
			on, at = s.Nodes, now
		}
		l.Unbook(request, giveBack, now)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, node := range on {
		b.left[node] = at
	}
	maps.DeleteFunc(b.left, func(_ string, t time.Time) bool { return at.Sub(t) > remembered })
}

// Left returns when a booking has ended last whose capacity was on the node, within a day; zero if none has.
func (b *Bookings) Left(node string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left[node]
}

// tries returns how many plans may be made now. Pods come first, but not for ever.
func (b *Bookings) tries(requests int) int {
	waiting := false
	b.Reservations.Read(func(l ledger.Reader) { waiting = l.Queued() > 0 })
	if !waiting || requests == 0 {
		b.waits = time.Time{}
		return mostTries
	}
	now := b.Clock.Now()
	if b.waits.IsZero() {
		b.waits = now
	}
	if now.Sub(b.waits) < mostWait {
		return 0
	}
	b.waits = time.Time{}
	return mostTries
}
