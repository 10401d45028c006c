package launch

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/records"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// recovery takes up what an earlier leader left, once before anything is planned, and again when another controller has owned the nodes.
type recovery struct {
	claims         *claimCache
	reservations   *reservations.Ledger
	restorer       *restorer
	resumption     *resumption
	spending       *spending.Guard
	daemonCapacity *provisioning.DaemonCapacity
	orders         *orderBook
	requesters     requesters
	finisher       *finisher
	tracker        *NodeTracker
	cleanup        *cleanup
	ownership      *Ownership
	calls          *calls
	unanswered     *records.Unanswered
}

// left is what an earlier leader left undone.
type left struct {
	drop     []*capacity.Claim            // claims on which no launch is recorded
	finish   []*capacity.Claim            // claims with an instance and without a Node
	batches  records.Batches              // the launch batches that the claims record
	pending  map[string][]*capacity.Claim // claims whose launch is recorded and whose instance isn't, by the token of their launch batch
	promises int                          // number of reservations that are restored
}

// recover resumes what an earlier leader left. The claims are the record:
//
//   - without a token: the call was never made; the claim is deleted, its pods are planned for anew;
//   - with a token and no instance: the same request is made again under the same token, which gives the same instances; a claim
//     that the batch's record names, but on which it was not written yet, gets the record before that;
//   - with an instance and no Node: the node is finished;
//   - with a Node that isn't initialized, or was initialized just now, or whose drivers have yet to publish storage that its pods wait for: its
//     reservations are restored.
//
// The cache may not show the last leader's latest writes yet. So a claim without a token in the cache is deleted only if the API server shows no
// launch of it either; otherwise the claim is resumed as the API server has it. Nothing is launched twice, and nothing is planned before recover
// returns. It returns without an answer about a claim only if the API server gives none for a while: then it is asked again while plans are made
// (drop). done is called when the ledger has the reservations that the cache shows.
func (r *recovery) recover(ctx context.Context, done func()) {
	claims := r.claims.Claims()
	slices.SortFunc(claims, func(a, b *capacity.Claim) int { return cmp.Compare(a.Name, b.Name) })
	shown := r.restore(ctx, claims)
	done()
	klog.FromContext(ctx).V(2).Info("Picked up where the last leader stopped", "claims", len(claims), "withoutCall", len(shown.drop),
		"launchBatchesOpen", len(shown.pending), "withoutNode", len(shown.finish), "promises", shown.promises)
	// After the ledger is restored: reserved capacity is kept from the first moment, however long the API server's answers take.
	kept := r.drop(ctx, shown.drop)
	late := r.restore(ctx, kept)
	for _, c := range kept {
		claims[slices.IndexFunc(claims, func(old *capacity.Claim) bool { return old.Name == c.Name })] = c
	}
	if !r.restoreSpending(ctx, claims) {
		return
	}
	r.resume(ctx, shown, claims)
	r.resume(ctx, late, claims)
}

// restore puts the claims' nodes and reservations back into the ledger, and returns the claims to delete and those without instance or Node.
func (r *recovery) restore(ctx context.Context, claims []*capacity.Claim) left {
	out := left{batches: records.BatchesOf(claims), pending: map[string][]*capacity.Claim{}}
	orders := records.OrdersOf(slices.Concat(claims, r.claims.Claims()))
	missing := r.daemonCapacity.Missing(ctx)
	var restored []ledger.Restored
	var named []*capacity.Claim
	for _, c := range claims {
		daemons := sync.OnceValue(func() []*capacity.DaemonSet { return missing(c.NodeName, c.Labels, c.Taints) })
		slots := r.restorer.holding(c, orders, daemons)
		if c.Deleting || c.Initialized && len(slots) == 0 {
			continue // no pod waits for its node
		}
		w := out.batches.Of(c.Name)
		switch {
		case !c.Launched && w == nil && (c.Order != nil || c.Unreadable != ""):
			continue // not ours to delete; serveOrders handles standalone NodeClaims
		case !c.Launched && w == nil:
			out.drop = append(out.drop, c)
			continue
		case !c.Launched:
			out.pending[w.Token] = append(out.pending[w.Token], c)
			if c.Order != nil {
				r.orders.begin(c)
			}
		case c.NodeName == "":
			out.finish = append(out.finish, c)
		}
		r.restorer.node(c, w, daemons())
		restored = append(restored, slots...)
		if c.NodeName != "" {
			named = append(named, c)
		}
	}
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Restore(restored, orders.Highest(), now) })
	for _, c := range named {
		r.tracker.named(c.Name, c.NodeName, c.ProviderID)
	}
	out.promises = len(restored)
	return out
}

// resume finishes nodes and launch batches in the background; all are the claims of the earlier leader.
func (r *recovery) resume(ctx context.Context, l left, all []*capacity.Claim) {
	for _, c := range l.finish {
		r.calls.wg.Go(func() { r.finisher.finish(ctx, r.requesters.of(c.LaunchBatch), c, c.Instance(), c.Labels) })
	}
	for token, cs := range l.pending {
		r.calls.wg.Go(func() {
			_ = panics.Catch(ctx, "launch", func() error { // Catch logs the panic: without it this would end the next leader, too
				r.resumption.resume(ctx, l.batches.Called(token), cs, all)
				return nil
			})
		})
	}
}

// restoreSpending makes the spending guard read its records, and retries until that works. It returns false when ctx ends first.
func (r *recovery) restoreSpending(ctx context.Context, claims []*capacity.Claim) bool {
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		err := r.spending.Restore(ctx, claims)
		if err == nil {
			break
		}
		klog.FromContext(ctx).Error(err, "The spending guard's records can't be read; nothing is launched before they are")
		if !r.calls.sleep(ctx, wait) {
			return false
		}
	}
	for _, c := range claims { // catch up with changes of the claims since they were listed
		if now := r.claims.Claim(c.Name); now == nil || now.UID != c.UID {
			r.spending.Ending(c.Name, nil)
			r.spending.Ended(c.Name, true)
		} else {
			r.spending.Observe(now)
		}
	}
	return true
}

// Readopt takes over what was launched and is not in the ledger, so that nothing is bought for it a second time: claims of the last leader
// about which the API server has answered late, and what another controller has launched while it owned nodes and claims. Only the planner's
// goroutine calls it, because no plan may be under way.
func (r *recovery) Readopt(ctx context.Context) {
	if r.ownership.Hold() != nil {
		return
	}
	if late := r.unanswered.Take(); len(late) > 0 {
		late = slices.DeleteFunc(late, func(c *capacity.Claim) bool { return !r.claims.lives(c) })
		for _, c := range late {
			r.spending.Observe(c)
		}
		r.resume(ctx, r.restore(ctx, late), r.claims.Claims())
	}
	if !r.ownership.wasHeld.Swap(false) {
		return
	}
	claims := slices.DeleteFunc(r.claims.Claims(), func(c *capacity.Claim) (skip bool) {
		r.reservations.Read(func(l ledger.Reader) { skip = l.Has(c.Name) })
		return skip || !c.Launched || c.Initialized || c.Deleting
	})
	r.resume(ctx, r.restore(ctx, claims), claims)
}
