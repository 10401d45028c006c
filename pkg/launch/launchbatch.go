package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

const (
	launchTimeout = capacity.LaunchTimeout
	// maxAttempts bounds how often a launch batch is asked for anew because offers ran out one after the other.
	maxAttempts = 20
	firstRetry  = 200 * time.Millisecond
	maxRetry    = 10 * time.Second
)

func (m *Motor) log(ctx context.Context) klog.Logger { return klog.FromContext(ctx) }

// launch carries a launch batch out. If its offers were refused the last time, one of its claims goes first (one).
//
//  1. From here the claims can't be cancelled; those nobody needs any more are left out.
//  2. The claims are written: the intent log. A crash before the next step leaves claims without a token, which a
//     restart deletes.
//  3. The request is prepared and recorded, with its token, on every claim of the launch batch. A crash from here on is repaired
//     by the same request under the same token.
//  4. The call. What came is finished in the background; what didn't is asked for again from the offers that are left,
//     as a new attempt with a token of its own.
func (m *Motor) launch(ctx context.Context, w *batch) {
	if err := panics.Catch(ctx, "launch", func() error {
		m.launchBatch(ctx, w)
		return nil
	}); err != nil {
		m.fail(ctx, w.claims, "LaunchFailed", err.Error(), false)
	}
}

func (m *Motor) launchBatch(ctx context.Context, w *batch) {
	if !m.one(ctx, w) {
		return
	}
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool {
		needed := w.purpose != capacity.ForPods || m.needed(c.Name)
		if !needed {
			m.forget(c.Name)
		}
		return !needed
	})
	if m.held(ctx, w) {
		return
	}
	m.write(ctx, w)
	m.carry(ctx, w)
}

// carry launches claims that are written.
func (m *Motor) carry(ctx context.Context, w *batch) {
	started := m.clock.Now()
	for len(w.claims) > 0 && ctx.Err() == nil {
		if w.attempt-w.first >= maxAttempts || m.clock.Since(started) > launchTimeout {
			m.fail(ctx, w.claims, "LaunchTimeout", w.delay.after("gave up after many attempts"), false)
			return
		}
		rec, ok := m.prepare(ctx, w)
		if !ok {
			return
		}
		if !m.call(ctx, w, rec, started) {
			return
		}
	}
}

// needed says whether somebody is still to get room on the claim's node. If so the claim can't be cancelled from here on, if
// not it is off the books.
func (m *Motor) needed(claim string) (yes bool) {
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		if yes = l.Launching(claim, now); !yes {
			l.ClaimGone(claim, "nobody needs it any more", true, now)
		}
	})
	return yes
}

// write creates the claims. Those that can't be written are not launched.
func (m *Motor) write(ctx context.Context, w *batch) {
	made := make([]*capacity.Claim, len(w.claims))
	var slots map[string][]capacity.Slot
	m.reservations.read(func(l *ledger.Ledger) { slots = l.AllSlots(namesOf(w.claims)) })
	m.each(ctx, len(w.claims), func(i int) {
		c := w.claims[i]
		c.Slots = slots[c.Name]
		got, err := m.claims.Create(ctx, c)
		if err != nil {
			if ctx.Err() == nil {
				m.fail(ctx, []*capacity.Claim{c}, "ClaimNotWritten", fmt.Sprintf("writing the NodeClaim: %v", err), false)
			}
			return
		}
		made[i] = got
		cp := *got
		m.keep(&cp)
	})
	w.claims = slices.DeleteFunc(made, func(c *capacity.Claim) bool { return c == nil })
}

// prepare makes the request and records it. A launch batch that can't be recorded on all of its claims goes on without the
// others; without any, it ends.
func (m *Motor) prepare(ctx context.Context, w *batch) (capacity.LaunchBatch, bool) {
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool { return !m.lives(c) }) // deleted meanwhile
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool {
		needed := w.purpose != capacity.ForPods || m.needed(c.Name)
		if !needed { // whatever was asked for it before has been answered: there is nothing to wait for
			m.background(ctx, func() { m.giveUp(ctx, c.Name, "NotNeeded", "its pods have gone") })
		}
		return !needed
	})
	w.claims = slices.DeleteFunc(w.claims, func(c *capacity.Claim) bool { // shrunk away before it was written
		over := m.isEnding(c.Name)
		if over {
			m.background(ctx, func() { m.giveUp(ctx, c.Name, "NotNeeded", "its pool has got enough nodes without it") })
		}
		return over
	})
	if len(w.claims) == 0 || m.held(ctx, w) {
		return capacity.LaunchBatch{}, false
	}
	if why := m.claims.NodeClassProblem(w.pool.NodeClass); why != "" { // since it was planned, or since the last attempt
		m.fail(ctx, w.claims, "NodeClassNotReady", why, false)
		return capacity.LaunchBatch{}, false
	}
	w.attempt++
	rec := m.record(w)
	req, err := m.cloud.Prepare(ctx, rec)
	if err != nil {
		if ctx.Err() == nil {
			exhausted := errors.Is(err, capacity.ErrInsufficientCapacity) && len(m.left(w, nil)) == 0
			m.fail(ctx, w.claims, reasonOf(err), err.Error(), exhausted)
		}
		return rec, false
	}
	rec.Request = req
	failed := make([]bool, len(w.claims))
	m.each(ctx, len(w.claims), func(i int) {
		if err := m.claims.RecordBatch(ctx, w.claims[i], rec); err != nil {
			failed[i] = true
			if ctx.Err() == nil {
				m.fail(ctx, []*capacity.Claim{w.claims[i]}, "LaunchNotRecorded", fmt.Sprintf("recording the launch on the NodeClaim: %v", err), false)
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
		// The record names claims that are no part of it any more: the others get one of their own.
		w.claims = left
		return rec, len(left) > 0 && m.again(ctx, w, &rec)
	}
	return rec, true
}

// again prepares once more for the claims that are left.
func (m *Motor) again(ctx context.Context, w *batch, rec *capacity.LaunchBatch) bool {
	r, ok := m.prepare(ctx, w)
	*rec = r
	return ok
}

func (m *Motor) record(w *batch) capacity.LaunchBatch {
	rec := capacity.LaunchBatch{
		Token: m.token(w.claims, w.attempt), Attempt: w.attempt, Claims: namesOf(w.claims), Pool: w.pool.Name, NodeClass: w.pool.NodeClass,
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

// call makes the launch call until it has an answer that counts. It leaves in w the claims that still have no instance
// and may be asked for again; false: it is over.
func (m *Motor) call(ctx context.Context, w *batch, rec capacity.LaunchBatch, started time.Time) bool {
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		res, err := m.cloud.Launch(ctx, rec)
		if ctx.Err() != nil {
			return false
		}
		switch {
		case err == nil || errors.Is(err, capacity.ErrInsufficientCapacity):
			return m.settleBatch(ctx, w, rec, res, err)
		case errors.Is(err, capacity.ErrThrottled) && res.Message != "":
			// The call was answered: its launches were throttled, and its token stands for that answer from now on.
			return m.settleBatch(ctx, w, rec, res, nil)
		case errors.Is(err, capacity.ErrRequestStale) && res.Message != "":
			// So was this one: nothing came, and nothing will.
			return m.settleBatch(ctx, w, rec, capacity.LaunchResult{Message: err.Error()}, nil)
		case errors.Is(err, capacity.ErrTokenMismatch), errors.Is(err, capacity.ErrRequestStale):
			// An earlier call may have worked. Whatever was launched under this token bears its tag.
			found, ferr := m.launched(ctx, rec)
			if ctx.Err() != nil {
				return false
			}
			if ferr != nil {
				err = ferr
				break
			}
			return m.settleBatch(ctx, w, rec, capacity.LaunchResult{Instances: found, Message: err.Error()}, nil)
		case errors.Is(err, capacity.ErrRefused), errors.Is(err, capacity.ErrNodeClassNotReady):
			m.fail(ctx, w.claims, reasonOf(err), err.Error(), false)
			return false
		}
		m.log(ctx).V(2).Info("Launch call failed; the same call is made again", "token", rec.Token, "claims", len(w.claims), "err", err)
		m.delayed(ctx, &rec, w.claims, &w.delay, err.Error())
		if m.clock.Since(started) > launchTimeout {
			// The answers may have been lost, not the calls: what bears the tag is ours.
			found, ferr := m.launched(ctx, rec)
			if ctx.Err() != nil {
				return false
			}
			if ferr == nil && len(found) > 0 {
				return m.settleBatch(ctx, w, rec, capacity.LaunchResult{Instances: found}, nil)
			}
			m.fail(ctx, w.claims, reasonOf(err), err.Error(), false)
			return false
		}
		if !m.sleep(ctx, wait) {
			return false
		}
	}
}

// settleBatch hands out instances to claims; what is over is ended. It says whether the claims that are left may be asked for again.
func (m *Motor) settleBatch(ctx context.Context, w *batch, rec capacity.LaunchBatch, res capacity.LaunchResult, err error) bool {
	m.scarce.learn(res.Instances, res.Exhausted, m.clock.Now())
	if len(res.Instances) > 0 {
		m.delayOver(rec.Pool)
	}
	slices.SortFunc(w.claims, func(a, b *capacity.Claim) int { return compare(a.Name, b.Name) })
	w.claims = m.handOut(ctx, &rec, w.claims, nil, res.Instances, w.labels)
	if len(w.claims) == 0 {
		return false
	}
	exhausted := map[capacity.OfferKey]bool{}
	for _, k := range res.Exhausted {
		exhausted[k] = true
	}
	before := len(w.offers)
	w.offers = m.left(w, exhausted)
	m.log(ctx).V(2).Info("Launch batch was not filled", "token", rec.Token, "came", len(res.Instances), "missing", len(w.claims), "exhausted", len(exhausted), "offersLeft", len(w.offers), "message", res.Message)
	if len(w.offers) == 0 || err != nil && len(w.offers) == before && !res.Again {
		why := res.Message
		if why == "" && err != nil {
			why = err.Error()
		}
		// The next plan is another one only if something was learned from this; if not, the same plan waits its time.
		m.fail(ctx, w.claims, "InsufficientCapacity", why, len(w.offers) < before)
		return false
	}
	if len(w.offers) == before && !res.Again { // the same again can do with a pause, longer each time
		m.delayed(ctx, &rec, w.claims, &w.delay, res.Message)
		return m.sleep(ctx, pauseAfter(w.attempt-w.first))
	}
	return true
}

// pauseAfter is how long to wait after so many attempts, at least one, before the same offers are asked for again.
func pauseAfter(attempts int) time.Duration {
	return min(firstRetry<<min(attempts-1, 10), maxRetry)
}

// left are the launch batch's offers that may still be had: not refused just now, and not known to be exhausted from elsewhere.
func (m *Motor) left(w *batch, exhausted map[capacity.OfferKey]bool) []capacity.NodeOffer {
	types, unready := m.cloud.InstanceTypes(w.pool.NodeClass)
	if unready != "" {
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

// end terminates an instance that belongs to nobody. Failing that, garbage collection finds it; and it is left to that if its
// kubelet has come already: pods may run there, and have to be asked to go before.
func (m *Motor) end(ctx context.Context, inst capacity.Instance) {
	id := inst.ID
	if nodes := m.nodeOf.ofMachine(inst.ProviderID); len(nodes) > 0 {
		for _, node := range nodes {
			m.Close(node, inst.ProviderID) // until then it gets no more pods
		}
		m.log(ctx).Info("An instance nobody needs has a Node; it is ended with that", "instance", id, "nodes", nodes)
		return
	}
	if err := m.cloud.Terminate(ctx, id); err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		m.log(ctx).Error(err, "Could not end an instance nobody needs; garbage collection will", "instance", id)
	}
}

// each runs f for 0..n-1, at most Parallel at once, and waits for all. It panics as the first of them does.
func (m *Motor) each(ctx context.Context, n int, f func(i int)) {
	done := make(chan error, n)
	for i := range n {
		go func() {
			done <- panics.Catch(ctx, "launch", func() error {
				select {
				case <-ctx.Done():
				case m.slots <- struct{}{}:
					defer func() { <-m.slots }()
					f(i)
				}
				return nil
			})
		}()
	}
	var first error
	for range n {
		first = cmp.Or(first, <-done)
	}
	if first != nil {
		panic(first)
	}
}

// reasonOf is the condition reason of a launch error.
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
