package launch

import (
	"context"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Rounds plans for the demand of bursts. It belongs to the planner's goroutine.
type Rounds struct {
	claims    *claimCache
	gatherer  *gatherer
	gangs     *gangPlans
	planning  *planning
	purchases *purchases
	committer *committer
	refusals  *refusals
	ownership *Ownership
	triggers  *Triggers
	clock     clock.PassiveClock
	verdicts  *verdicts
	relief    *relief
}

// round serves the demand of one burst.
//
//  1. Gather: queued pods and their unscheduled siblings.
//  2. View: snapshot, nodes in flight, reservations, pools, offerings, DaemonSets.
//  3. Plan.
//  4. Verify with the real filters; plan again without the refused placements as long as that helps, then refuse their pods.
//  5. Reserve what is to be bought from the pools' limits, and write the plan to the ledger: pods for existing nodes may go at
//     once.
//  6. Launch what has to be bought, in the background.
func (r *Rounds) round(ctx context.Context) {
	logger := klog.FromContext(ctx)
	start := r.clock.Now()
	changes := r.triggers.changes.Load()
	defer func() {
		// A change that arrived while the plan was made could not reopen pods that are refused only now.
		if r.triggers.changes.Load() != changes {
			r.triggers.reopen()
		}
	}()
	defer r.relief.begins()()
	r.verdicts.catchUp()
	waiting, gangs := r.gatherer.gather(ctx)
	if len(waiting) == 0 {
		return
	}
	if why := r.ownership.hold(); why != "" {
		r.ownership.refuseHeld(ctx, uidsOf(waiting), why)
		return
	}
	if r.ownership.takesOver() {
		return
	}
	if why := r.claims.Problem(); why != "" {
		r.ownership.troubled.Store(true)
		r.refusals.refuse(ctx, uidsOf(waiting), "nothing can be launched: "+why, true)
		return
	}
	v, plan, err := r.planning.decide(ctx, waiting, gangs, nil)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		logger.Error(err, "No plan could be made; nothing is launched, and demand is planned for later")
		r.refusals.refuse(ctx, uidsOf(waiting), err.Error(), true)
		return
	}
	if v, plan = r.affordable(ctx, v, plan, waiting, gangs); ctx.Err() != nil {
		return
	}
	claims := r.purchases.reserve(plan, len(v.inFlight), buying{})
	r.gangs.paused(plan, gangs)
	r.claims.ArchitecturesOpen(capacity.OpenArchitectures(plan))
	batches := r.committer.book(ctx, v, plan, claims)
	logger.V(2).Info("Planned", "pods", len(waiting), "placed", len(plan.Placements), "newNodes", len(plan.Nodes),
		"dollarsPerHour", plan.CostPerHour, "lowerBound", plan.LowerBound, "took", r.clock.Since(start))
	r.relief.refused(v.Pools, plan.Refused)
	for _, refused := range plan.Refused {
		r.refusals.refusal(ctx, refused)
	}
	r.committer.launch(ctx, batches)
}

// Propose returns what the next round would decide about the current demand, without any effect: nothing is reserved, written or launched.
// It is for controllers that don't run.
func (r *Rounds) Propose(ctx context.Context) (*capacity.View, *capacity.Plan, error) {
	waiting, gangs := r.gatherer.gather(ctx)
	v, plan, err := r.planning.decide(ctx, waiting, gangs, nil)
	if err != nil {
		return nil, nil, err
	}
	return &v.View, plan, nil
}
