package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/planned"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/scarcity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// batchLauncher carries out launch batches, each in a goroutine of its own.
type batchLauncher struct {
	claims       *claimCache
	cloud        Cloud
	reservations *reservations.Ledger
	namer        *namer
	delays       *delays
	cleanup      *cleanup
	finisher     *finisher
	ownership    *Ownership
	triggers     *provisioning.Triggers
	calls        *calls
	scarce       scarcity.Offerings
}

const (
	launchTimeout = capacity.LaunchTimeout
	// maxAttempts bounds the number of fleet requests for a launch batch while its offerings run out one after the other.
	maxAttempts = 20
	firstRetry  = 200 * time.Millisecond
	maxRetry    = 10 * time.Second
)

// launch carries out a launch batch. If the cloud had no capacity for any of its offerings at the last try, only one of its claims is
// launched at first, as a test.
//
//  1. Leave out the claims that no pod needs any more. The others can't be cancelled from here on.
//  2. Write the claims: they are the intent log. A crash before the next step leaves claims without a token, which a
//     restart deletes.
//  3. Prepare the request and record it, with its token, on every claim of the batch. A crash from here on is repaired
//     by the same request under the same token.
//  4. Make the call. Nodes are finished in the background for the instances it returns. Claims without an instance are
//     launched again from the offerings that are left, as a new attempt with its own token.
func (b *batchLauncher) launch(ctx context.Context, w *batch) {
	if err := panics.Catch(ctx, "launch", func() error {
		b.launchBatch(ctx, w)
		return nil
	}); err != nil {
		b.cleanup.fail(ctx, w.requester, w.claims, "LaunchFailed", err.Error(), false)
	}
}

func (b *batchLauncher) launchBatch(ctx context.Context, w *batch) {
	if !b.one(ctx, w) {
		return
	}
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool {
		needed := w.purpose != capacity.ForPods || w.needs(c)
		if !needed {
			b.cleanup.forget(c.Name)
		}
		return !needed
	})
	if b.ownership.held(ctx, w) {
		return
	}
	b.write(ctx, w)
	if note := planned.FewTypes(w.offers); note != "" && slices.ContainsFunc(w.claims, planned.ForWantOfSpot) {
		b.claims.TellPool(w.pool.Name, corev1.EventTypeWarning, "FewInstanceTypes", note)
	}
	b.carry(ctx, w)
}

// carry launches claims that have been written.
func (b *batchLauncher) carry(ctx context.Context, w *batch) {
	started := b.calls.clock.Now()
	for len(w.claims) > 0 && ctx.Err() == nil {
		if w.attempt-w.first >= maxAttempts || b.calls.clock.Since(started) > launchTimeout {
			b.cleanup.fail(ctx, w.requester, w.claims, "LaunchTimeout", w.delay.after("gave up after many attempts"), false)
			return
		}
		rec, ok := b.prepare(ctx, w)
		if !ok {
			return
		}
		if !b.call(ctx, w, rec, started) {
			return
		}
	}
}

// write creates the claims on the API server. A claim that a user has written exists already: it gets our finalizer, and a record of what it
// counts for with the spending guard. Claims that can't be written are not launched.
func (b *batchLauncher) write(ctx context.Context, w *batch) {
	made := make([]*capacity.Claim, len(w.claims))
	var slots map[string][]capacity.Slot
	b.reservations.Read(func(l ledger.Reader) { slots = l.AllSlots(namesOf(w.claims)) })
	b.calls.each(ctx, len(w.claims), func(i int) {
		c := w.claims[i]
		if c.Order != nil {
			if err := b.claims.Take(ctx, c); err != nil {
				b.cleanup.fail(ctx, w.requester, []*capacity.Claim{c}, "ClaimNotWritten", err.Error(), false)
				return
			}
			made[i] = c
			return
		}
		c.Slots = slots[c.Name]
		got, err := b.claims.Create(ctx, c)
		if err != nil {
			if ctx.Err() == nil {
				b.cleanup.fail(ctx, w.requester, []*capacity.Claim{c}, "ClaimNotWritten", fmt.Sprintf("writing the NodeClaim: %v", err), false)
			}
			return
		}
		made[i] = got
		cp := *got
		b.claims.keep(&cp)
	})
	w.claims = slices.DeleteFunc(made, func(c *capacity.Claim) bool { return c == nil })
}

// prepare builds the fleet request and records it on every claim of the batch. A claim on which it can't be recorded fails and leaves the
// batch. It returns false if the batch is over: no claim is left, or no request can be built.
func (b *batchLauncher) prepare(ctx context.Context, w *batch) (capacity.LaunchBatch, bool) {
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool { return !b.claims.lives(c) }) // deleted meanwhile
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool {
		needed, why := w.requester.Needed(c.Name)
		if !needed { // earlier calls have been answered: no instance can still arrive
			b.calls.background(ctx, func() { b.cleanup.giveUp(ctx, c, "NotNeeded", why) })
		}
		return !needed
	})
	if len(w.claims) == 0 || b.ownership.held(ctx, w) {
		return capacity.LaunchBatch{}, false
	}
	if err := b.claims.NodeClassProblem(w.pool.NodeClass); err != nil { // it may have become unusable since the plan, or since the last attempt
		b.cleanup.fail(ctx, w.requester, w.claims, "NodeClassNotReady", err.Error(), false)
		return capacity.LaunchBatch{}, false
	}
	w.attempt++
	rec := b.record(w)
	req, err := b.cloud.Prepare(ctx, rec)
	if err != nil {
		if ctx.Err() == nil {
			exhausted := errors.Is(err, capacity.ErrInsufficientCapacity) && len(b.left(w, nil)) == 0
			b.cleanup.fail(ctx, w.requester, w.claims, reasonOf(err), err.Error(), exhausted)
		}
		return rec, false
	}
	rec.Request = req
	failed := make([]bool, len(w.claims))
	b.calls.each(ctx, len(w.claims), func(i int) {
		if err := b.claims.RecordBatch(ctx, w.claims[i], rec); err != nil {
			failed[i] = true
			if ctx.Err() == nil {
				b.cleanup.fail(ctx, w.requester, []*capacity.Claim{w.claims[i]}, "LaunchNotRecorded", fmt.Sprintf("recording the launch on the NodeClaim: %v", err), false)
			}
		}
	})
	if ctx.Err() != nil {
		return rec, false
	}
	if slices.Contains(failed, true) {
		var left []*capacity.Claim
		for i, c := range w.claims {
			if !failed[i] {
				left = append(left, c)
			}
		}
		// The recorded request names claims that are no longer part of it: the others get a request of their own.
		w.claims = left
		return rec, len(left) > 0 && b.again(ctx, w, &rec)
	}
	return rec, true
}

// again prepares a new request for the claims that are left after some have failed.
func (b *batchLauncher) again(ctx context.Context, w *batch, rec *capacity.LaunchBatch) bool {
	r, ok := b.prepare(ctx, w)
	*rec = r
	return ok
}

func (b *batchLauncher) record(w *batch) capacity.LaunchBatch {
	rec := capacity.LaunchBatch{
		Token: b.namer.token(w.claims, w.attempt), Attempt: w.attempt, Claims: namesOf(w.claims), Pool: w.pool.Name, NodeClass: w.pool.NodeClass,
		CapacityType: w.capacityType, For: w.purpose, Labels: w.labels, Taints: w.pool.Taints, StartupTaints: w.pool.StartupTaints, Requests: capacity.Resources{},
	}
	priced := slices.ContainsFunc(w.offers, func(o capacity.NodeOffer) bool { return o.Offer.PriceOverlaid })
	for _, o := range w.offers {
		rec.Offers = append(rec.Offers, o.Key())
		if priced {
			rec.Prices = append(rec.Prices, o.Offer.Price)
		}
	}
	for _, c := range w.claims {
		rec.Requests.AtLeast(c.Requests)
	}
	return rec
}

func namesOf(claims []*capacity.Claim) []string {
	out := make([]string, 0, len(claims))
	for _, c := range claims {
		out = append(out, c.Name)
	}
	slices.Sort(out)
	return out
}

// call repeats the launch call until it has a final answer. It leaves in w the claims that still have no instance and may be launched
// again; it returns false when the batch is over.
func (b *batchLauncher) call(ctx context.Context, w *batch, rec capacity.LaunchBatch, started time.Time) bool {
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		res, err := b.cloud.Launch(ctx, rec)
		if ctx.Err() != nil {
			return false
		}
		switch {
		case err == nil || errors.Is(err, capacity.ErrInsufficientCapacity):
			return b.settleBatch(ctx, w, rec, res, err)
		case errors.Is(err, capacity.ErrThrottled) && res.Message != "":
			// The call was answered: its launches were throttled, and repeating its token would give the same answer.
			return b.settleBatch(ctx, w, rec, res, nil)
		case errors.Is(err, capacity.ErrRequestStale) && res.Message != "":
			// This call was answered, too: it launched nothing, and its token never will.
			return b.settleBatch(ctx, w, rec, capacity.LaunchResult{Message: err.Error()}, nil)
		case errors.Is(err, capacity.ErrTokenMismatch), errors.Is(err, capacity.ErrRequestStale):
			// An earlier call may have worked. Instances launched under this token are tagged with it.
			found, ferr := b.launched(ctx, rec)
			if ctx.Err() != nil {
				return false
			}
			if ferr != nil {
				err = ferr
				break
			}
			return b.settleBatch(ctx, w, rec, capacity.LaunchResult{Instances: found, Message: err.Error()}, nil)
		case errors.Is(err, capacity.ErrRefused), errors.Is(err, capacity.ErrNodeClassNotReady):
			b.cleanup.fail(ctx, w.requester, w.claims, reasonOf(err), err.Error(), false)
			return false
		}
		klog.FromContext(ctx).V(2).Info("Launch call failed; the same call is made again", "token", rec.Token, "claims", len(w.claims), "err", err)
		b.delays.delayed(ctx, &rec, w.claims, &w.delay, err.Error())
		if b.calls.clock.Since(started) > launchTimeout {
			// The answers may have been lost, not the calls: instances tagged with the token are ours.
			found, ferr := b.launched(ctx, rec)
			if ctx.Err() != nil {
				return false
			}
			if ferr == nil && len(found) > 0 {
				return b.settleBatch(ctx, w, rec, capacity.LaunchResult{Instances: found}, nil)
			}
			b.cleanup.fail(ctx, w.requester, w.claims, reasonOf(err), err.Error(), false)
			return false
		}
		if !b.calls.sleep(ctx, wait) {
			return false
		}
	}
}

// settleBatch assigns instances to claims and ends those that are left over. It reports whether the claims without an instance may be
// launched again.
func (b *batchLauncher) settleBatch(ctx context.Context, w *batch, rec capacity.LaunchBatch, res capacity.LaunchResult, err error) bool {
	b.scarce.Learn(res.Instances, res.Exhausted, b.calls.clock.Now())
	if len(res.Instances) > 0 {
		b.delays.delayOver(rec.Pool)
	}
	slices.SortFunc(w.claims, func(a, b *capacity.Claim) int { return cmp.Compare(a.Name, b.Name) })
	w.claims = b.handOut(ctx, &rec, w.requester, w.claims, nil, res.Instances, w.labels)
	if len(w.claims) == 0 {
		return false
	}
	exhausted := map[capacity.OfferKey]bool{}
	for _, k := range res.Exhausted {
		exhausted[k] = true
	}
	before := len(w.offers)
	w.offers = b.left(w, exhausted)
	klog.FromContext(ctx).V(2).Info("Launch batch was not filled", "token", rec.Token, "came", len(res.Instances), "missing", len(w.claims), "exhausted", len(exhausted), "offersLeft", len(w.offers), "message", res.Message)
	if len(w.offers) == 0 || err != nil && len(w.offers) == before && !res.Again {
		why := res.Message
		if why == "" && err != nil {
			why = err.Error()
		}
		// The next plan will differ only if an offering ran out; if none did, the same plan waits for its back-off.
		b.cleanup.fail(ctx, w.requester, w.claims, "InsufficientCapacity", why, len(w.offers) < before)
		return false
	}
	if len(w.offers) == before && !res.Again { // the same offerings again: pause first, longer each time
		b.delays.delayed(ctx, &rec, w.claims, &w.delay, res.Message)
		return b.calls.sleep(ctx, pauseAfter(w.attempt-w.first))
	}
	return true
}

// pauseAfter returns how long to wait after so many attempts, at least one, before the same offerings are tried again.
func pauseAfter(attempts int) time.Duration {
	return min(firstRetry<<min(attempts-1, 10), maxRetry)
}

// left returns the batch's offerings that may still have capacity: neither refused by this call nor known from elsewhere to be unavailable.
func (b *batchLauncher) left(w *batch, exhausted map[capacity.OfferKey]bool) []capacity.NodeOffer {
	types, err := b.cloud.InstanceTypes(w.pool.NodeClass)
	if err != nil {
		return nil
	}
	available := map[capacity.OfferKey]bool{}
	for _, t := range types {
		for _, o := range t.Offers {
			if o.Available {
				available[capacity.NodeOffer{Type: t, Offer: o}.Key()] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(w.offers), func(o capacity.NodeOffer) bool { return exhausted[o.Key()] || !available[o.Key()] })
}

// end terminates an instance that no claim owns, and repeats that while the cloud doesn't know the instance yet or doesn't answer: until
// garbage collection finds the instance its kubelet may register, and then it has to be drained. It is left to garbage collection after
// capacity.LaunchGrace, or if its kubelet has registered: pods may run there, and have to be evicted first.
func (f *finisher) end(ctx context.Context, inst capacity.Instance) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "instance", inst.ID)
	started := f.calls.clock.Now()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		if nodes := f.tracker.states.ofMachine(inst.ProviderID); len(nodes) > 0 {
			for _, node := range nodes {
				f.tracker.Close(node, inst.ProviderID) // keep further pods off until the instance is terminated
			}
			logger.Info("An instance that no claim owns has a Node; it is terminated once that is drained", "nodes", nodes)
			return
		}
		err := f.cloud.Terminate(ctx, inst.ID)
		if err == nil {
			return
		}
		if f.calls.clock.Since(started) > capacity.LaunchGrace {
			logger.Error(err, "Could not terminate an instance that no claim owns; garbage collection will retry")
			return
		}
		if !f.calls.sleep(ctx, wait) {
			return
		}
	}
}

// reasonOf returns the condition reason for a launch error.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, capacity.ErrInsufficientCapacity):
		return "InsufficientCapacity"
	case errors.Is(err, capacity.ErrNodeClassNotReady):
		return "NodeClassNotReady"
	case errors.Is(err, capacity.ErrRefused):
		return "LaunchRefused"
	case errors.Is(err, capacity.ErrThrottled):
		return "Throttled"
	}
	return "LaunchFailed"
}
