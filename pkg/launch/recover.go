package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
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
	unanswered     *unanswered
}

// restorer puts the nodes and reservations that claims record back into the ledger.
type restorer struct {
	claims       *claimCache
	cloud        Cloud
	reservations *reservations.Ledger
	pending      *pending.Pods
	tracker      *NodeTracker
}

// resumption ends launch batches whose answer an earlier leader didn't see, each in a goroutine of its own.
type resumption struct {
	claims     *claimCache
	cloud      Cloud
	requesters requesters
	batches    *batchLauncher
	delays     *delays
	cleanup    *cleanup
	ownership  *Ownership
	calls      *calls
}

// left is what an earlier leader left undone.
type left struct {
	drop     []*capacity.Claim                // no launch of them is recorded
	finish   []*capacity.Claim                // they have an instance and no Node
	batches  map[string]*capacity.LaunchBatch // by token
	pending  map[string][]*capacity.Claim     // token -> claims without instance
	promises int
}

// recover resumes what an earlier leader left. The claims are the record:
//
//   - without a token: the call was never made; the claim is deleted, its pods are planned for anew;
//   - with a token and no instance: the same request is made again under the same token, which gives the same instances; a claim
//     that the batch's record names, but on which it was not written yet, gets the record before that;
//   - with an instance and no Node: the node is finished;
//   - with a Node that isn't initialized, or whose drivers have yet to publish storage that its pods wait for: its reservations
//     are restored.
//
// The cache may be behind the last leader's writes: a claim that is not deleted, because the API server knows of its launch, is resumed as
// the API server has it. Nothing is launched that was launched before, and nothing is planned before recover returns, unless the API server
// has no answer about a claim for a while: then it is asked again beside the plans (drop). done is called when the ledger has the
// reservations that the cache shows.
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

// restore puts the claims' nodes and reservations back into the ledger, and returns what is left to do.
func (r *recovery) restore(ctx context.Context, claims []*capacity.Claim) left {
	out := left{batches: map[string]*capacity.LaunchBatch{}, pending: map[string][]*capacity.Claim{}}
	memberOf := map[string]*capacity.LaunchBatch{} // by claim
	orders := 0
	for _, c := range claims {
		for _, s := range c.Slots {
			orders = max(orders, s.Order)
		}
		if c.LaunchBatch == nil || c.LaunchBatch.Token == "" {
			continue
		}
		if have := out.batches[c.LaunchBatch.Token]; have == nil {
			out.batches[c.LaunchBatch.Token] = c.LaunchBatch
		}
		for _, name := range c.LaunchBatch.Claims {
			// A batch's record may name a claim on which it was not written yet, because the crash came in between.
			if cur := memberOf[name]; cur == nil || cur.Attempt < c.LaunchBatch.Attempt {
				memberOf[name] = out.batches[c.LaunchBatch.Token]
			}
		}
	}
	missing := r.daemonCapacity.Missing(ctx)
	var restored []ledger.Restored
	for _, c := range claims {
		if !r.restorer.promises(c) {
			continue
		}
		w := memberOf[c.Name]
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
		restored = append(restored, r.restorer.restore(c, w, missing(c.NodeName, c.Labels, c.Taints))...)
	}
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Restore(restored, orders, now) })
	for _, c := range claims {
		if c.NodeName != "" && r.restorer.promises(c) {
			r.tracker.named(c.Name, c.NodeName, c.ProviderID)
		}
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
			_ = panics.Catch(ctx, "launch", func() error { // logged by Catch: it would end the next leader, too
				r.resumption.resume(ctx, l.batches[token], cs, all)
				return nil
			})
		})
	}
}

// promises reports whether pods may wait for the claim's node.
func (r *restorer) promises(c *capacity.Claim) bool {
	if c.Deleting || !c.Initialized {
		return !c.Deleting
	}
	return slices.ContainsFunc(c.Slots, func(s capacity.Slot) bool {
		pod := r.pending.Get(s.Pod.UID)
		if pod == nil {
			return false
		}
		class, err := r.pending.Classes.Class(pod)
		return err == nil && r.awaitsStorageOf(c, class)
	})
}

// awaitsStorageOf reports whether the claim's Node exists and its drivers have yet to publish storage or devices that pods of the class count
// on.
func (r *restorer) awaitsStorageOf(c *capacity.Claim, class *capacity.Class) bool {
	r.tracker.states.mu.Lock()
	st, seen := r.tracker.states.seen[c.NodeName]
	r.tracker.states.mu.Unlock()
	return seen && slices.ContainsFunc(class.Drivers, func(d string) bool { return capacity.PublishedLater(d) && !slices.Contains(st.Drivers, d) })
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

// restore adds a claim's node to the ledger and returns its reservations for pods that still wait.
func (r *restorer) restore(c *capacity.Claim, w *capacity.LaunchBatch, daemons []*capacity.DaemonSet) []ledger.Restored {
	n := &capacity.Node{Labels: c.Labels, Taints: c.Taints, InFlight: true, Allocatable: c.Allocatable}
	if len(n.Allocatable) == 0 {
		n.Allocatable = r.smallest(c, w)
	}
	n.Free = n.Allocatable.Clone()
	n.Kind.Devices = r.devices(c, w)
	n.Kind.Boot = bootsAs(c.Pool, c.NodeClass, n)
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.RecoverNode(c.Name, n, provisioning.DaemonRequests(daemons), now)
	})
	var out []ledger.Restored
	for _, s := range c.Slots {
		pod := r.pending.Get(s.Pod.UID)
		if pod == nil {
			continue
		}
		if class, err := r.pending.Classes.Class(pod); err == nil && (!c.Initialized || r.awaitsStorageOf(c, class)) {
			out = append(out, ledger.Restored{Slot: s, Node: c.Name, Class: class})
		}
	}
	return out
}

// devices returns the key of the devices that a claim's node will have; before its launch, those that all requested offerings have.
func (r *restorer) devices(c *capacity.Claim, w *capacity.LaunchBatch) string {
	of := r.pending.Classes.Devices()
	if of == nil || c.InstanceType != "" || w == nil || len(w.Offers) == 0 {
		return of.OfClaim(c)
	}
	types, _ := r.cloud.InstanceTypes(c.NodeClass)
	byType := map[string]string{}
	for _, t := range types {
		byType[t.Name] = of.Template(c.NodeClass, t.Name, t.Image)
	}
	key := byType[w.Offers[0].InstanceType]
	if slices.ContainsFunc(w.Offers, func(o capacity.OfferKey) bool { return byType[o.InstanceType] != key }) {
		return ""
	}
	return key
}

// smallest returns the allocatable resources of the smallest type that the batch may have launched or, if the catalog doesn't know it, the
// claim's requests.
func (r *restorer) smallest(c *capacity.Claim, w *capacity.LaunchBatch) capacity.Resources {
	types, _ := r.cloud.InstanceTypes(c.NodeClass)
	var out capacity.Resources
	for _, t := range types {
		if w == nil || !slices.ContainsFunc(w.Offers, func(k capacity.OfferKey) bool { return k.InstanceType == t.Name }) {
			continue
		}
		t = r.claims.Overlaid(c.Pool, t)
		if out == nil {
			out = t.Allocatable.Clone()
		} else {
			out.AtMost(t.Allocatable)
		}
	}
	if out == nil {
		return c.Requests.Clone()
	}
	return out
}

// resume makes a launch batch's call again, exactly as it was recorded, and assigns the instances to the claims that have none yet. Claims
// whose pods are gone end; if none is left, no call is made: instances that an earlier call may have launched are found by the controllers
// that end the claims.
func (r *resumption) resume(ctx context.Context, rec *capacity.LaunchBatch, missing []*capacity.Claim, all []*capacity.Claim) {
	by := r.requesters.of(rec)
	started := r.calls.clock.Now()
	var late delay
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		if r.ownership.pause(ctx) {
			started = r.calls.clock.Now()
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if missing, err = r.stillNeeded(ctx, rec, by, missing); err == nil && len(missing) == 0 {
			return
		}
		if err == nil {
			missing, err = r.recordRest(ctx, rec, missing, all)
		}
		if err == nil && len(missing) == 0 {
			return
		}
		var insts []capacity.Instance
		if err == nil {
			insts, err = r.repeat(ctx, rec)
		}
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			if without := r.batches.handOut(ctx, rec, by, missing, all, insts, nil); len(without) > 0 {
				r.cleanup.fail(ctx, by, without, "LaunchIncomplete", "the launch was interrupted and returned no instance for it", true)
			}
			return
		}
		klog.FromContext(ctx).V(2).Info("Could not repeat a launch of before the restart; trying again", "token", rec.Token, "err", err)
		r.delays.delayed(ctx, rec, missing, &late, err.Error())
		if r.calls.clock.Since(started) > launchTimeout {
			r.cleanup.fail(ctx, by, missing, reasonOf(err), err.Error(), false)
			return
		}
		if !r.calls.sleep(ctx, wait) {
			return
		}
	}
}

// stillNeeded drops claims that no pod waits for, if the batch launched nothing. Otherwise their pods may already be on the node: a kubelet
// that registered before this process started has created it.
func (r *resumption) stillNeeded(ctx context.Context, rec *capacity.LaunchBatch, by provisioning.Requester, missing []*capacity.Claim) ([]*capacity.Claim, error) {
	unneeded := func(c *capacity.Claim) bool {
		yes, _ := by.Needed(c.Name)
		return !yes
	}
	if rec.For != capacity.ForPods || !slices.ContainsFunc(missing, unneeded) {
		return missing, nil
	}
	found, err := r.cloud.FindBatch(ctx, rec.Token)
	if err != nil || len(found) > 0 {
		return missing, err
	}
	return slices.DeleteFunc(missing, func(c *capacity.Claim) bool {
		gone := unneeded(c)
		if gone {
			r.calls.background(ctx, func() { r.cleanup.cancel(ctx, c.Name) })
		}
		return gone
	}), nil
}

// repeat makes the call or, where it can't be repeated, returns the instances that it launched.
func (r *resumption) repeat(ctx context.Context, rec *capacity.LaunchBatch) ([]capacity.Instance, error) {
	if len(rec.Request) > 0 {
		res, err := r.cloud.Launch(ctx, *rec)
		switch {
		case err == nil, errors.Is(err, capacity.ErrInsufficientCapacity), errors.Is(err, capacity.ErrThrottled) && res.Message != "":
			return res.Instances, nil
		case errors.Is(err, capacity.ErrTokenMismatch), errors.Is(err, capacity.ErrRequestStale), errors.Is(err, capacity.ErrRefused):
		default:
			return nil, err
		}
	}
	return r.batches.launched(ctx, *rec)
}

// recordRest writes the batch's record on those of its claims that don't have it: the last leader crashed while it was writing the records.
// The repeated call launches an instance for each of these claims, too, and termination and garbage collection need the record, so it is
// written before the call. Claims that are gone are left out, and so are those of which the cache was behind: the last leader went on to another
// attempt, which is resumed instead.
func (r *resumption) recordRest(ctx context.Context, rec *capacity.LaunchBatch, missing, all []*capacity.Claim) ([]*capacity.Claim, error) {
	if !slices.ContainsFunc(missing, func(c *capacity.Claim) bool { return !c.LaunchedBy(rec) }) {
		return missing, nil
	}
	var left []*capacity.Claim
	later := map[string][]*capacity.Claim{} // by the token of their own launch batch
	for _, c := range missing {
		switch now, err := r.claims.RecordBatchUnlessLater(ctx, c, *rec); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return missing, fmt.Errorf("recording the launch on NodeClaim %s: %w", c.Name, err)
		case now == nil:
			own := *c
			own.LaunchBatch = rec
			left = append(left, &own)
		case now.ProviderID == "" && !now.Deleting:
			later[now.LaunchBatch.Token] = append(later[now.LaunchBatch.Token], now)
		}
	}
	for _, claims := range later {
		r.calls.wg.Go(func() { r.resume(ctx, claims[0].LaunchBatch, claims, all) })
	}
	return left, nil
}

// handOut assigns the instances of a launch batch to its claims that wait for one, finishes their nodes, and returns the claims that get
// none. An instance of a claim that is being deleted is left to termination: its kubelet may have registered, and pods may run there. An
// instance that belongs to no claim is ended. before holds the claims as they were found after a restart; if labels is nil, each claim's
// own labels are used.
func (b *batchLauncher) handOut(ctx context.Context, rec *capacity.LaunchBatch, by provisioning.Requester, waiting, before []*capacity.Claim, insts []capacity.Instance, labels map[string]string) (without []*capacity.Claim) {
	owners := b.batchOwners(rec, waiting, before)
	of, over := owners.Assign(rec, insts)
	for _, c := range waiting {
		inst, ok := of[c.Name]
		switch {
		case ok:
			on := labels
			if on == nil {
				on = c.Labels
			}
			b.calls.wg.Go(func() { b.finisher.finish(ctx, by, c, inst, on) })
		case owners.Waits(c.Name):
			without = append(without, c)
		}
	}
	for _, inst := range over {
		klog.FromContext(ctx).Info("Terminating an instance of a launch batch that no claim owns", "token", rec.Token, "instance", inst.ID)
		b.calls.wg.Go(func() { // it may take minutes, and nothing else that runs in the background must wait for that
			_ = panics.Catch(ctx, "launch", func() error { // logged by Catch
				b.finisher.end(ctx, inst)
				return nil
			})
		})
	}
	return without
}

// batchOwners returns the owners of a batch's instances, from its claims as they are now: those waiting here, those being deleted on which
// the batch is recorded, and those with an instance, now or before. All others have been given up by this process and are about to be
// deleted, or their termination looks for no instance of this batch.
func (b *batchLauncher) batchOwners(rec *capacity.LaunchBatch, waiting, before []*capacity.Claim) *capacity.InstanceOwners {
	claims := slices.DeleteFunc(slices.Clone(before), func(c *capacity.Claim) bool { return c.ProviderID == "" })
	here := map[string]*capacity.Claim{}
	for _, c := range waiting {
		here[c.Name] = c
	}
	for _, name := range rec.Claims {
		c, now := here[name], b.claims.Current(name)
		if now != nil && (c == nil && (now.Deleting && now.LaunchedBy(rec) || now.ProviderID != "") || c != nil && now.UID == c.UID) {
			c = now
		}
		if c != nil {
			own := *c
			own.LaunchBatch = rec
			claims = append(claims, &own)
		}
	}
	return capacity.InstanceOwnersOf(claims)
}

// Readopt takes over what was launched and is not in the ledger, so that nothing is bought for it a second time: claims of the last leader
// about which the API server has answered late, and what another controller has launched while it owned nodes and claims. Only the planner's
// goroutine calls it, because no plan may be under way.
func (r *recovery) Readopt(ctx context.Context) {
	if r.ownership.Hold() != nil {
		return
	}
	if late := r.unanswered.take(); len(late) > 0 {
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
