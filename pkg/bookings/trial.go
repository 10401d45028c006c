package bookings

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/booked"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// trial is what has been tried for a request.
type trial struct {
	phase  Phase
	plans  int       // number of plans made for it
	failed int       // consecutive plans without capacity for it
	next   time.Time // nothing is planned for it before
	since  time.Time // when its capacity was booked
	ready  time.Time // when all of its capacity was first there
	// launches is how often nodes were launched for it.
	launches int
	bought   bool
	why      string
}

const (
	// hold is how long capacity stays booked if this package doesn't run.
	hold = 2 * time.Minute
	// launchTime is how long the nodes of a request may take until all of them are initialized. Registration has its own, shorter time limit.
	launchTime = 30 * time.Minute
	// firstPause is for how long nothing is planned for a request after there was no capacity for it; it doubles up to longPause.
	firstPause = 5 * time.Second
	longPause  = 5 * time.Minute
	// launchPause is the same after nodes were launched in vain, longLaunchPause its maximum, and mostLaunches how often that may happen.
	launchPause     = time.Minute
	longLaunchPause = 30 * time.Minute
	mostLaunches    = 5
)

// tried notes that there was no capacity for the request.
func (t *trial) tried(now time.Time, why string) {
	t.plans++
	t.why, t.next = why, now.Add(min(firstPause<<min(t.failed, 10), longPause))
	t.failed++
}

// advance brings a request one step further.
func (b *Bookings) advance(ctx context.Context, r *Request, t *trial, tries *int) error {
	var s booked.State
	booked := false
	b.Reservations.Read(func(l ledger.Reader) { s, booked = l.Booked(r.UID) })
	now := b.Clock.Now()
	told := !r.Until.IsZero()
	switch {
	case t.phase == GivenUp || t.phase == Revoked || t.phase == Consumed:
	case told && !booked && t.plans == 0:
		return b.again(ctx, r, t)
	case told && !booked && t.phase != Ready:
		t.phase = Revoked // its capacity was lost while its status was being written
	case told && booked, t.phase == Ready && s.Gone == 0:
		return b.tend(ctx, r, t, &s)
	case told:
	case booked && s.Gone > 0:
		b.fail(ctx, r, t, s.Why)
	case booked && now.Sub(t.since) > launchTime:
		b.fail(ctx, r, t, fmt.Sprintf("its nodes have not been initialized within %v", launchTime))
	case booked:
		b.Reservations.Step(func(l *ledger.Ledger, now time.Time) { l.KeepBooked(r.UID, now.Add(hold)) })
		if t.phase == Ready && now.Sub(t.ready) > KeptFor {
			b.unbook(r.UID, true)
			t.phase, t.why = GivenUp, fmt.Sprintf("it could not be told of its capacity within %v", KeptFor)
			return nil
		} else if t.phase != Ready {
			t.ready = now
		}
		if t.phase, t.why = Launching, fmt.Sprintf("%d of %d pods have capacity on nodes that are initialized, the others on nodes that are being launched", s.Up, s.Kept); s.Up == s.Kept {
			t.phase, t.why = Ready, ""
		}
	case now.Before(t.next) || *tries <= 0:
	default:
		*tries--
		return b.try(ctx, r, t)
	}
	return nil
}

// fail gives up what a try has launched. What has not registered yet is terminated, unless other pods use it at once.
func (b *Bookings) fail(ctx context.Context, r *Request, t *trial, why string) {
	b.unbook(r.UID, true)
	klog.FromContext(ctx).V(2).Info("Not all of a ProvisioningRequest's capacity could be had; the rest is given back", "provisioningRequest", klog.KRef(r.Namespace, r.Name), "reason", why)
	t.phase, t.why, t.failed = Waiting, why, 0
	t.next = b.Clock.Now().Add(min(launchPause<<min(max(t.launches-1, 0), 10), longLaunchPause))
	if t.launches >= mostLaunches {
		t.phase, t.why = GivenUp, fmt.Sprintf("nodes were launched for it %d times in vain, the last time: %s", t.launches, why)
	}
}

// try plans capacity for all pods of a request, and books it.
func (b *Bookings) try(ctx context.Context, r *Request, t *trial) error {
	v, err := b.Plans.View(ctx)
	if err != nil {
		return err
	}
	forbidden := b.MayLaunch(r.Namespace)
	var plan *capacity.Plan
	if r.Buys && forbidden == nil {
		plan, err = b.Plans.Buy(ctx, v, r.demand(r.Sets, true))
	} else {
		settled(v)
		plan, err = b.Plans.Fit(ctx, v, r.demand(r.Sets, true))
	}
	if err != nil {
		return err
	}
	why := own(plan, r.UID)
	if len(plan.Placements) < r.Pods() {
		if r.Buys && forbidden != nil {
			why = forbidden.Error()
		}
		t.tried(b.Clock.Now(), cmp.Or(why, "there is no capacity for all of its pods"))
		return nil
	}
	made, ok := b.book(ctx, r, v, plan)
	if !ok {
		t.tried(b.Clock.Now(), cmp.Or(made.Why, "what was free has just been taken"))
		return nil
	}
	t.plans, t.failed = t.plans+1, 0
	t.phase, t.why, t.since, t.bought = Launching, "", b.Clock.Now(), len(plan.Nodes) > 0
	if t.bought {
		t.launches++
	}
	klog.FromContext(ctx).V(2).Info("Booked capacity for a ProvisioningRequest", "provisioningRequest", klog.KRef(r.Namespace, r.Name), "pods", r.Pods(),
		"newNodes", len(plan.Nodes), "dollarsPerHour", plan.CostPerHour)
	b.Replan() // if all of it is on nodes that are up, it is ready
	b.due.Store(true)
	return nil
}

// book reserves the placements of a plan, and launches its nodes: all or nothing.
func (b *Bookings) book(ctx context.Context, r *Request, v *provisioning.View, plan *capacity.Plan) (out provisioning.Outcome, ok bool) {
	wanted := len(plan.Placements)
	out = b.Committer.Commit(ctx, &provisioning.Proposal{Plan: plan, Existing: v.Existing, Terms: provisioning.Terms{Whole: true, Booked: true, Pod: noPod},
		Place: func(l *ledger.Ledger, id string, placements []capacity.Placement, now time.Time) {
			ok = len(placements) == wanted && wanted > 0 && l.Book(id, r.UID, placements, now.Add(hold), now)
		}})
	return out, ok
}

// tend keeps the capacity of a request that has been told of it until its time is over. What was lost with a node is booked on other nodes,
// if these have it. If not, pods that come later are demand like any others; if no pod has come yet, the request is revoked.
func (b *Bookings) tend(ctx context.Context, r *Request, t *trial, s *booked.State) error {
	until := r.Until.Add(hold) // its status says that the time is over before the capacity is free
	if r.Until.IsZero() {
		until = b.Clock.Now().Add(hold)
	}
	b.Reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.KeepBooked(r.UID, until) })
	t.phase = Ready
	switch {
	case s.Gone > 0:
		return b.replace(ctx, r, t, s)
	case s.Kept == 0 && s.Pods > 0 && !r.Until.IsZero():
		t.phase = Consumed
	}
	return nil
}

// replace books capacity on other nodes for what was lost.
func (b *Bookings) replace(ctx context.Context, r *Request, t *trial, s *booked.State) error {
	var lost []Set
	for _, set := range r.Sets {
		if n := s.Lost[set.Class.Key]; n > 0 {
			lost = append(lost, Set{set.Class, n})
			delete(s.Lost, set.Class.Key) // another set may have the same class
		}
	}
	n, _, err := b.rebook(ctx, r, lost)
	if err != nil {
		return err
	}
	if n < s.Gone && s.Taken() == 0 {
		b.unbook(r.UID, false)
		t.phase, t.why = Revoked, fmt.Sprintf("capacity for %d of %d pods was lost: %s", s.Gone, s.Pods, s.Why)
		return nil
	}
	b.Reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Mend(r.UID) })
	return nil
}

// again books the capacity of a request that was told of it before this process began, for the pods that have not come yet, as far as they
// fit on nodes that exist or are being launched.
func (b *Bookings) again(ctx context.Context, r *Request, t *trial) error {
	if len(r.Sets) == 0 { // its templates are gone: for how many pods it was can't be known any more, and no capacity can be found for them
		t.plans++
		t.phase, t.why = Ready, "its pod templates are gone"
		return nil
	}
	left := b.Named(r.Namespace, r.Name)
	var missing []Set
	for _, set := range r.Sets {
		n := max(0, set.Pods-left)
		left = max(0, left-set.Pods)
		if n > 0 {
			missing = append(missing, Set{set.Class, n})
		}
	}
	n, why, err := b.rebook(ctx, r, missing)
	if err != nil {
		return err
	}
	t.plans++
	if t.phase, t.why = Ready, why; len(missing) == 0 {
		t.phase = Consumed
	}
	klog.FromContext(ctx).V(2).Info("Booked the capacity of a ProvisioningRequest again", "provisioningRequest", klog.KRef(r.Namespace, r.Name), "pods", n, "why", why)
	return nil
}

// rebook books capacity for pods of a request where it is free or on its way, and buys nothing. It returns for how many it did.
func (b *Bookings) rebook(ctx context.Context, r *Request, sets []Set) (n int, why string, err error) {
	if len(sets) == 0 {
		return 0, "", nil
	}
	v, err := b.Plans.View(ctx)
	if err != nil {
		return 0, "", err
	}
	plan, err := b.Plans.Fit(ctx, v, r.demand(sets, false))
	if err != nil {
		return 0, "", err
	}
	why = own(plan, r.UID)
	if n = len(plan.Placements); n == 0 {
		return 0, why, nil
	}
	if _, ok := b.book(ctx, r, v, plan); !ok {
		return 0, "what was free has just been taken", nil
	}
	return n, why, nil
}

// demand returns pods of a request as demand; whole: all of them or none. They don't exist: their UIDs are made from the request's.
func (r *Request) demand(sets []Set, whole bool) []capacity.Demand {
	var gang *capacity.Gang
	if whole {
		gang = &capacity.Gang{Key: "ProvisioningRequest " + r.Namespace + "/" + r.Name, Missing: r.Pods()}
	}
	out := make([]capacity.Demand, 0, len(sets))
	for i, s := range sets {
		d := capacity.Demand{Class: s.Class, Gang: gang}
		for j := range s.Pods {
			d.Pods = append(d.Pods, capacity.PodRef{UID: types.UID(fmt.Sprintf("%s#%d-%d", r.UID, i, j)), Namespace: r.Namespace, Name: fmt.Sprintf("%s-%d-%d", r.Name, i, j)})
		}
		out = append(out, d)
	}
	return out
}
