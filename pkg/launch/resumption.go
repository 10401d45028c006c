package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// resumption ends launch batches whose answer an earlier leader didn't see, each in a goroutine of its own.
type resumption struct {
	claims       *claimCache
	cloud        Cloud
	reservations *reservations.Ledger
	requesters   requesters
	batches      *batchLauncher
	delays       *delays
	cleanup      *cleanup
	ownership    *Ownership
	calls        *calls
}

// resume makes a launch batch's call again, exactly as it was recorded, and assigns the instances to missing, its claims that have none yet. all
// are the claims as they were found after the restart. Claims whose pods are gone are ended first. If no claim is left, no call is made:
// instances that an earlier call may have launched are found by the controllers that end the claims.
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

// stillNeeded ends the claims that no pod waits for, and returns the others. It ends none if the batch launched an instance: pods of the claim may
// already run on its node, if the kubelet registered before this process started. The ledger keeps the claims until that is known.
func (r *resumption) stillNeeded(ctx context.Context, rec *capacity.LaunchBatch, by provisioning.Requester, missing []*capacity.Claim) ([]*capacity.Claim, error) {
	if rec.For != capacity.ForPods {
		return missing, nil
	}
	reserved := r.reservations.Keeps(namesOf(missing))
	if !slices.ContainsFunc(missing, func(c *capacity.Claim) bool { return !reserved[c.Name] }) {
		return missing, nil
	}
	found, err := r.cloud.FindBatch(ctx, rec.Token)
	if err != nil || len(found) > 0 {
		return missing, err
	}
	return slices.DeleteFunc(missing, func(c *capacity.Claim) bool {
		needed, _ := by.Needed(c.Name)
		if !needed {
			r.calls.background(ctx, func() { r.cleanup.cancel(ctx, c.Name) })
		}
		return !needed
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
// written before the call. Claims that are gone are left out. So are claims whose cached state was too old: the last leader went on to another
// attempt, which is resumed instead, or to an instance, whose node is finished. They are left out after an error, too: what has been begun for
// a claim is neither begun again nor given up with the others.
func (r *resumption) recordRest(ctx context.Context, rec *capacity.LaunchBatch, missing, all []*capacity.Claim) ([]*capacity.Claim, error) {
	if !slices.ContainsFunc(missing, func(c *capacity.Claim) bool { return !c.LaunchedBy(rec) }) {
		return missing, nil
	}
	var left []*capacity.Claim
	var failed error
	later := map[string][]*capacity.Claim{} // claims that have gone on to another launch batch, by its token
	for _, c := range missing {
		switch now, err := r.claims.RecordBatchUnlessLater(ctx, c, *rec); {
		case apierrors.IsNotFound(err):
		case err != nil:
			left, failed = append(left, c), fmt.Errorf("recording the launch on NodeClaim %s: %w", c.Name, err)
		case now == nil:
			own := *c
			own.LaunchBatch = rec
			left = append(left, &own)
		case now.Deleting || now.Initialized:
		case now.ProviderID == "":
			later[now.LaunchBatch.Token] = append(later[now.LaunchBatch.Token], now)
		case now.NodeName == "": // the last leader launched it and got no further
			r.calls.wg.Go(func() {
				r.batches.finisher.finish(ctx, r.requesters.of(now.LaunchBatch), now, now.Instance(), now.Labels)
			})
		default:
			r.batches.finisher.tracker.named(now.Name, now.NodeName, now.ProviderID)
		}
	}
	for _, claims := range later {
		r.calls.wg.Go(func() {
			_ = panics.Catch(ctx, "launch", func() error { // Catch logs the panic: without it this would end the next leader, too
				r.resume(ctx, claims[0].LaunchBatch, claims, all)
				return nil
			})
		})
	}
	return left, failed
}
