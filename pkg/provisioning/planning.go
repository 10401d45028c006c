package provisioning

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// planning makes verified plans. It belongs to the planner's goroutine.
type planning struct {
	viewer   *viewer
	planner  Planner
	world    World
	nodes    Nodes
	pending  *pending.Pods
	spending *spending.Guard
	clock    clock.PassiveClock
	options  capacity.Options
	refused  *filterrefusals.Memory // what the filters refused in earlier rounds
	moves    *moves.Moves           // moves of the consolidation: what is reserved for moves that have not begun may go to pending pods
}

// decide takes a view of the cluster and makes a verified plan for the waiting pods, as if the breakers of the spending guard in lift, which are
// being probed, were closed.
func (p *planning) decide(ctx context.Context, waiting []ledger.Waiting, gangs map[pending.Group]*Gang, lift []guard.Key) (v *View, plan *capacity.Plan, err error) {
	return p.decideWithout(ctx, waiting, gangs, lift, nil)
}

// decideWithout is decide as if the moves that would empty these nodes were given up.
func (p *planning) decideWithout(ctx context.Context, waiting []ledger.Waiting, gangs map[pending.Group]*Gang, lift []guard.Key, moves map[string]bool) (v *View, plan *capacity.Plan, err error) {
	err = panics.Catch(ctx, "planner", func() error {
		if v, err = p.viewer.without(ctx, waiting, moves); err != nil {
			return fmt.Errorf("taking a view of the cluster: %w", err)
		}
		if len(lift) > 0 { // a probe is one instance, for pods that exist
			v.Demand = slices.DeleteFunc(v.Demand, func(d capacity.Demand) bool { return d.Owner != "" })
		}
		if plan, err = p.verified(ctx, v, p.pending.Get, gangs, lift); err == nil {
			byPriority(plan)
		}
		return err
	})
	return v, plan, err
}

// demandFirst returns the plan or, if it buys nodes or refuses pods, a better one that uses what is reserved for moves that have not begun.
// Those moves are given up, and no others.
func (p *planning) demandFirst(ctx context.Context, v *View, plan *capacity.Plan, waiting []ledger.Waiting, gangs map[pending.Group]*Gang, lift []guard.Key) (*View, *capacity.Plan) {
	if len(plan.Nodes) == 0 && len(plan.Refused) == 0 {
		return v, plan
	}
	moves := p.moves.Yielding()
	if len(moves) == 0 {
		return v, plan
	}
	v2, without, err := p.decideWithout(ctx, waiting, gangs, lift, moves)
	if err != nil || !better(without, plan) {
		return v, plan
	}
	if claim := func(node string) string { return v2.Existing[node].Claim }; !p.moves.GiveUp(without, claim, moves) {
		return v, plan
	}
	klog.FromContext(ctx).V(2).Info("Capacity that was reserved for moves goes to pods that wait", "newNodes", len(without.Nodes), "otherwise", len(plan.Nodes))
	return v2, without
}

// verified makes a verified plan for the demand of a view, without what the spending guard forbids.
func (p *planning) verified(ctx context.Context, v *View, pod func(types.UID) *corev1.Pod, gangs map[pending.Group]*Gang, lift []guard.Key) (*capacity.Plan, error) {
	opts := p.options
	forbidden, held := p.spending.Restrict(&v.View, pod, lift)
	opts.Forbidden = append(slices.Clone(opts.Forbidden), forbidden...)
	v.Demand = withGangs(v.Demand, pod, gangs)
	d := Decider{Planner: p.planner, World: p.world, Nodes: p.nodes, Pod: pod, Patience: defaultPatience, Clock: p.clock, memory: p.refused}
	plan, err := d.Decide(ctx, &v.Scene, opts)
	if err != nil {
		return nil, fmt.Errorf("the plan could not be verified: %w", err)
	}
	plan.Refused = append(plan.Refused, held...)
	return plan, nil
}

// byPriority orders a plan's nodes by the highest priority of the pods on them, because a limit cuts the plan at its end. If pods of low
// priority were served first, those that outrank them would take their capacity, and their instances would have been launched in vain.
func byPriority(plan *capacity.Plan) {
	highest := map[string]int32{}
	for _, pl := range plan.Placements {
		if have, ok := highest[pl.Node]; !ok || pl.Class.Priority > have {
			highest[pl.Node] = pl.Class.Priority
		}
	}
	slices.SortStableFunc(plan.Nodes, func(a, b *capacity.PlannedNode) int { return cmp.Compare(highest[b.ID], highest[a.ID]) })
}
