package provisioning

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/burst"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
)

// Rounds plans for the demand of bursts. It belongs to the planner's goroutine.
type Rounds struct {
	claims    Claims
	gatherer  *Gatherer
	gangs     *gangPlans
	planning  *planning
	purchases Purchases
	committer Committer
	refusals  *Refusals
	ownership Ownership
	triggers  *Triggers
	clock     clock.PassiveClock
	verdicts  *Verdicts
	relief    *limits.Relief
	window    *burst.Window
}

// Round serves the demand of one burst.
//
//  1. Gather: queued pods and their unscheduled siblings.
//  2. View: snapshot, nodes in flight, reservations, pools, offerings, DaemonSets.
//  3. Plan.
//  4. Verify with the real filters; plan again without the refused placements as long as that helps, then refuse their pods.
//  5. Hold: while more pods are likely to come, nodes that aren't full wait for them.
//  6. Commit: what may be bought is reserved from the pools' limits, the plan is written to the ledger, so that pods for existing
//     nodes may go at once, and what has to be bought is launched in the background.
//  7. Refuse the pods that have no place.
func (r *Rounds) Round(ctx context.Context) {
	logger := klog.FromContext(ctx)
	start := r.clock.Now()
	defer r.triggers.reopenIfChanged()()
	defer r.relief.Begins()()
	r.verdicts.catchUp()
	waiting, gangs := r.gatherer.Gather(ctx)
	if len(waiting) == 0 {
		return
	}
	if why := r.ownership.Hold(); why != nil {
		r.ownership.RefuseHeld(ctx, UIDsOf(waiting), why)
		return
	}
	if r.ownership.TakesOver() {
		return
	}
	if err := r.claims.Problem(); err != nil {
		r.ownership.LogBroken()
		r.refusals.Refuse(ctx, UIDsOf(waiting), "nothing can be launched: "+err.Error(), true)
		return
	}
	v, plan, err := r.planning.decide(ctx, waiting, gangs, nil)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		logger.Error(err, "No plan could be made; nothing is launched, and demand is planned for later")
		r.refusals.Refuse(ctx, UIDsOf(waiting), err.Error(), true)
		return
	}
	v, plan = r.planning.demandFirst(ctx, v, plan, waiting, gangs, nil)
	if v, plan = r.affordable(ctx, v, plan, waiting, gangs); ctx.Err() != nil {
		return
	}
	plan, held := r.withoutTail(plan, waiting)
	karpentermetrics.Scheduled("provisioner", r.clock.Since(start))
	r.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Place: (*ledger.Ledger).Commit})
	r.gangs.paused(plan, gangs)
	r.claims.ArchitecturesOpen(capacity.OpenArchitectures(plan))
	logger.V(2).Info("Planned", "pods", len(waiting), "placed", len(plan.Placements), "newNodes", len(plan.Nodes), "heldNodes", held,
		"dollarsPerHour", plan.CostPerHour, "lowerBound", plan.LowerBound, "took", r.clock.Since(start))
	r.relief.Refused(v.Pools, plan.Refused)
	for _, refused := range plan.Refused {
		r.refusals.refusePlanned(ctx, refused)
	}
}

// withoutTail returns the plan without the nodes that wait for more pods, and how many these are. Where the spending guard stops nodes, none waits:
// pods that it refuses hear of it at once, and it has looked at the nodes with the pods that are planned there.
func (r *Rounds) withoutTail(plan *capacity.Plan, waiting []ledger.Waiting) (*capacity.Plan, int) {
	without := *plan
	without.Nodes, without.Placements = slices.Clone(plan.Nodes), slices.Clone(plan.Placements)
	held := r.window.Hold(&without, waiting)
	if held == 0 {
		return plan, 0
	}
	if len(r.purchases.Preview(&Proposal{Plan: plan})) > 0 || len(r.purchases.Preview(&Proposal{Plan: &without})) > 0 {
		r.window.Release()
		return plan, 0
	}
	return &without, held
}

// Propose returns what the next round would decide about the current demand, without any effect: nothing is reserved, written or launched.
// It is for controllers that don't run.
func (r *Rounds) Propose(ctx context.Context) (*capacity.View, *capacity.Plan, error) {
	waiting, gangs := r.gatherer.Gather(ctx)
	v, plan, err := r.planning.decide(ctx, waiting, gangs, nil)
	if err != nil {
		return nil, nil, err
	}
	return &v.View, plan, nil
}

// affordable returns the plan, or a new plan for fewer pods if the spending guard would remove some of its nodes. The rest of the plan has not been
// verified without these nodes: if its pods are spread over zones together with the pods of a removed node, the filters would refuse them. And if
// reservations form a group, removing one node removes the whole group, again in each round, and nothing would ever be bought.
func (r *Rounds) affordable(ctx context.Context, v *View, plan *capacity.Plan, waiting []ledger.Waiting, gangs map[pending.Group]*Gang) (*View, *capacity.Plan) {
	out := r.purchases.Preview(&Proposal{Plan: plan})
	why := map[types.UID]capacity.Removal{}
	for _, pl := range plan.Placements {
		if reason, ok := out[pl.Node]; ok {
			why[pl.Pod.UID] = reason
		}
	}
	if len(why) == 0 || len(out) == len(plan.Nodes) {
		return v, plan
	}
	var left []ledger.Waiting
	refused := map[capacity.ClassKey]*capacity.Refusal{}
	for _, w := range waiting {
		reason, ok := why[w.Ref.UID]
		if !ok {
			left = append(left, w)
			continue
		}
		given := refused[w.Class.Key]
		if given == nil {
			given = &capacity.Refusal{Class: w.Class, Message: reason.Message, Retryable: true, Soon: reason.Soon}
			refused[w.Class.Key] = given
		}
		given.Pods = append(given.Pods, w.Ref)
	}
	v2, fewer, err := r.planning.decide(ctx, left, gangs, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "No plan could be made for fewer pods", "pods", len(left))
		return v, plan
	}
	for _, key := range slices.Sorted(maps.Keys(refused)) {
		fewer.Refused = append(fewer.Refused, *refused[key])
	}
	return v2, fewer
}
