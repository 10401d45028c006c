package launch

import (
	"context"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// drop deletes claims on which the cache shows no launch. If the API server shows a launch on one, drop returns that claim instead, as the API
// server has it. Nothing is planned before drop returns, so claims about which there is no answer for a while are left to dropLater.
func (r *recovery) drop(ctx context.Context, claims []*capacity.Claim) []*capacity.Claim {
	r.unanswered.Add(claims)
	started := r.calls.clock.Now()
	r.calls.each(ctx, len(claims), func(i int) {
		for wait := firstRetry; !r.ask(ctx, claims[i].Name); wait *= 2 {
			if r.calls.clock.Since(started) > maxRetry || !r.calls.sleep(ctx, wait) {
				return
			}
		}
	})
	if len(r.unanswered.Names()) > 0 {
		r.calls.wg.Go(func() { r.dropLater(ctx) })
	}
	return r.unanswered.Take()
}

// dropLater asks again until there is an answer about every claim. The planner's goroutine takes over the claims that were launched (Readopt).
// Their pods may have been planned for elsewhere meanwhile: a launch that was recorded but not made is then not made any more.
func (r *recovery) dropLater(ctx context.Context) {
	for names := r.unanswered.Names(); len(names) > 0 && r.calls.sleep(ctx, maxRetry); names = r.unanswered.Names() {
		r.ownership.pause(ctx)
		r.calls.each(ctx, len(names), func(i int) { r.ask(ctx, names[i]) })
		r.cleanup.triggers.Replan()
	}
}

// ask has the API server delete a claim if it knows of no launch of it, and reports whether there was an answer.
func (r *recovery) ask(ctx context.Context, name string) bool {
	var launched *capacity.Claim
	err := panics.Catch(ctx, "launch", func() (err error) {
		launched, err = r.cleanup.drop(ctx, name)
		return err
	})
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "nodeClaim", name)
	switch {
	case err != nil && ctx.Err() == nil:
		logger.Error(err, "Could not find out whether the last leader launched a claim, or delete it; trying again")
	case launched != nil:
		logger.Info("The last leader launched a claim that seemed not to be launched")
	}
	if err == nil {
		r.unanswered.Answered(name, launched)
	}
	return err == nil
}
