package launch

import (
	"cmp"
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// buying says under which conditions a plan is bought.
type buying struct {
	lift   []guard.Key                 // breakers that don't apply to this purchase
	probe  guard.Key                   // the breaker (one of lift) that the purchase probes
	urgent bool                        // for pods of nodes that are about to be lost
	pod    func(types.UID) *corev1.Pod // finds the plan's pods; nil: among the pending ones
}

// podsOf returns a func that finds the plan's pods; nil: among the pending ones.
func (b *purchases) podsOf(how buying) func(types.UID) *corev1.Pod {
	if how.pod != nil {
		return how.pod
	}
	return b.pending.Get
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

// admit removes from a plan the nodes that the spending guard doesn't let us buy.
func (b *purchases) admit(plan *capacity.Plan, how buying) {
	if out := b.tooMuch(plan, how); len(out) > 0 {
		without(plan, out)
	}
}

// tooMuch returns the nodes of a plan that the spending guard doesn't let us buy, and why.
func (b *purchases) tooMuch(plan *capacity.Plan, how buying) map[string]capacity.Removal {
	if b.spending == nil || len(plan.Nodes) == 0 {
		return nil
	}
	workloads, _ := b.spending.WantedOn(plan, b.podsOf(how))
	a := b.spending.Check(len(plan.Nodes), b.claims.allClaims)
	gangs := map[string]string{} // by node
	for _, pl := range plan.Placements {
		if pl.Gang != nil {
			gangs[pl.Node] = pl.Gang.Key
		}
	}
	out := map[string]capacity.Removal{}
	for _, n := range plan.Nodes {
		n.Offers = a.Spare(n.Pool, n.Offers, workloads[n.ID])
		if why, soon := a.Refuses(n.Pool, n.Offers, workloads[n.ID], how.lift, how.urgent, gangs[n.ID]); why != "" {
			out[n.ID] = capacity.Removal{Message: why, Soon: soon}
		}
	}
	return out
}

// affordable returns the plan, or a new plan for fewer pods if the spending guard would remove nodes that hold members of a bind group.
// Removing such nodes would remove the group's other members too, again in each round, and nothing would ever be bought for any of them.
func (r *Rounds) affordable(ctx context.Context, v *view, plan *capacity.Plan, waiting []ledger.Waiting, gangs map[pending.Group]*gang) (*view, *capacity.Plan) {
	out := r.purchases.tooMuch(plan, buying{})
	why := map[types.UID]capacity.Removal{}
	grouped := false
	for _, pl := range plan.Placements {
		if reason, ok := out[pl.Node]; ok {
			why[pl.Pod.UID] = reason
			grouped = grouped || pl.Group != 0
		}
	}
	if !grouped || len(out) == len(plan.Nodes) {
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

// purchase records the plan's nodes with the spending guard, and on each claim which workloads it is bought for and which breakers it
// probes.
func (b *purchases) purchase(plan *capacity.Plan, claims map[string]*capacity.Claim, how buying) {
	if b.spending == nil {
		return
	}
	round := b.namer.randomName("r")
	workloads, wanted := b.spending.WantedOn(plan, b.podsOf(how))
	for _, n := range plan.Nodes {
		c := claims[n.ID]
		c.Purchase = &guard.Purchase{Round: round, Workloads: workloads[n.ID], Moves: how.urgent}
		for _, key := range how.lift {
			if key != how.probe && spending.Spares(key, n) {
				continue
			}
			if spending.Probes(key, n, workloads[n.ID], nil) {
				c.Purchase.Probes = append(c.Purchase.Probes, key)
			}
		}
		b.spending.Buy(c, n.Offers, wanted[n.ID])
	}
}
