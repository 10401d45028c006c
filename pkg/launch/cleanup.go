package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/pkg/staticpool"
)

// cleanup ends claims that were not launched, or whose launch has failed. Safe for concurrent use.
type cleanup struct {
	claims       *claimCache
	reservations *reservations.Ledger
	spending     *spending.Guard
	statics      *staticpool.State
	orders       *orderBook
	delays       *delays
	refusals     *provisioning.Refusals
	triggers     *provisioning.Triggers
	calls        *calls
	relief       *limits.Relief
}

// cancel deletes a claim that was never launched and that no pod needs.
func (cl *cleanup) cancel(ctx context.Context, claim string) { cl.end(ctx, claim, cl.uid(claim)) }

// uid returns the UID of the claim that has the name now, or "".
func (cl *cleanup) uid(claim string) string {
	if c := cl.claims.Current(claim); c != nil {
		return c.UID
	}
	return ""
}

// end deletes the claim with that UID. If a user has created another claim of the same name meanwhile, what is known of that one is kept.
func (cl *cleanup) end(ctx context.Context, claim, uid string) {
	if err := cl.claims.Delete(ctx, claim, uid); err != nil {
		klog.FromContext(ctx).Error(err, "Could not delete a claim that is not needed any more; it will be collected", "nodeClaim", claim)
	}
	if now := cl.uid(claim); now == "" || uid == "" || now == uid {
		cl.forget(claim)
	}
	cl.triggers.Recount()
}

// drop deletes a claim of the last leader that no pod needs, unless the API server shows a launch on it that the cache doesn't show yet: then
// the claim stays, and is returned as the API server has it.
func (cl *cleanup) drop(ctx context.Context, claim string) (launched *capacity.Claim, err error) {
	if launched, err = cl.claims.Drop(ctx, claim); launched == nil && err == nil {
		cl.forget(claim)
		cl.triggers.Recount()
	}
	return launched, err
}

// fail ends claims whose launch has failed, unless their requester keeps them. Their pods are planned anew, without back-off if exhausted is set.
func (cl *cleanup) fail(ctx context.Context, by provisioning.Requester, claims []*capacity.Claim, reason, why string, exhausted bool) {
	logger := klog.FromContext(ctx)
	why = objects.OneLine(why)
	for _, c := range claims {
		name, now := c.Name, cl.claims.Current(c.Name)
		if now != nil && now.UID != c.UID && c.UID != "" {
			continue // it is gone, and another claim has its name
		}
		became := "was not launched"
		if reason == reasonInstanceLost || reason == reasonNodeNotCreated {
			became = "failed to start"
		}
		pods := cl.refusals.TellPods(name, "LaunchFailed", fmt.Sprintf("node %s %s: %s", name, became, why))
		logger.V(2).Info("Launch failed", "nodeClaim", name, "reason", reason, "message", why, "pods", pods)
		cl.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.ClaimGone(name, why, exhausted, now) })
		cl.delays.delayOver(c.Pool)
		if now != nil && by.Failed(ctx, now, reason, why) {
			continue
		}
		this := c
		if now != nil {
			this = now // with what was written to the claim since
		}
		cl.calls.background(ctx, func() { cl.giveUp(ctx, this, reason, why) })
	}
}

// giveUp records why a claim's launch failed and deletes the claim. No launch of it may be under way.
func (cl *cleanup) giveUp(ctx context.Context, c *capacity.Claim, reason, why string) {
	if err := cl.claims.RecordLaunchFailed(ctx, c, reason, why); err != nil {
		klog.FromContext(ctx).V(3).Info("Could not record why the launch failed", "nodeClaim", c.Name, "err", err)
	}
	cl.end(ctx, c.Name, c.UID)
}

// Cancel deletes a claim that no pod needs any more, in the background.
func (cl *cleanup) Cancel(ctx context.Context, claim string) {
	uid := cl.uid(claim)
	cl.calls.background(ctx, func() { cl.end(ctx, claim, uid) })
}

// EndUnused terminates instances before their kubelets register: the gang that they were launched for can't be placed, and no other pod took
// them.
func (cl *cleanup) EndUnused(ctx context.Context, claims []string) {
	slices.Sort(claims)
	for _, claim := range claims {
		klog.FromContext(ctx).V(2).Info("Terminating an instance before its kubelet registers: the gang it was launched for can't be placed, and no pod took it", "nodeClaim", claim)
		cl.spending.Unused(claim, cl.reservations.Unplanned)
		cl.Cancel(ctx, claim)
	}
}

// forget drops all that is remembered of a claim that is gone, or that won't be written.
func (cl *cleanup) forget(name string) {
	cl.spending.Ended(name, false) // if the guard has no verdict about the claim yet, it gets none: there never was an instance
	pool := cl.claims.forget(name)
	cl.orders.forget(name)
	cl.statics.Forget(name) // after claims.forget: once statics no longer says that the claim is ending, no reader must find the claim
	if pool != "" {
		cl.relief.ClaimEnded(pool)
	}
}
