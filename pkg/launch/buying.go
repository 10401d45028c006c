package launch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// podsOf returns a func that finds the plan's pods; nil: among the pending ones.
func (b *purchases) podsOf(terms provisioning.Terms) func(types.UID) *corev1.Pod {
	if terms.Pod != nil {
		return terms.Pod
	}
	return b.pending.Get
}

// admit removes from a plan the nodes that the spending guard doesn't let us buy.
func (b *purchases) admit(plan *capacity.Plan, terms provisioning.Terms) {
	if out := b.Preview(plan, terms); len(out) > 0 {
		without(plan, out)
	}
}

// Preview returns the nodes of a plan that the spending guard doesn't let us buy, and why.
func (b *purchases) Preview(plan *capacity.Plan, terms provisioning.Terms) map[string]capacity.Removal {
	if b.spending == nil || len(plan.Nodes) == 0 {
		return nil
	}
	workloads, _ := b.spending.WantedOn(plan, b.podsOf(terms))
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
		if why, soon := a.Refuses(n.Pool, n.Offers, workloads[n.ID], terms.Lifted, terms.Urgent, gangs[n.ID]); why != "" {
			out[n.ID] = capacity.Removal{Message: why, Soon: soon}
		}
	}
	return out
}

// purchase records the plan's nodes with the spending guard, and on each claim which workloads it is bought for and which breakers it
// probes.
func (b *purchases) purchase(plan *capacity.Plan, claims map[string]*capacity.Claim, terms provisioning.Terms) {
	if b.spending == nil {
		return
	}
	round := b.namer.randomName("r")
	workloads, wanted := b.spending.WantedOn(plan, b.podsOf(terms))
	for _, n := range plan.Nodes {
		c := claims[n.ID]
		c.Purchase = &guard.Purchase{Round: round, Workloads: workloads[n.ID], Moves: terms.Urgent}
		for _, key := range terms.Lifted {
			if key != terms.Probe && spending.Spares(key, n) {
				continue
			}
			if spending.Probes(key, n, workloads[n.ID], nil) {
				c.Purchase.Probes = append(c.Purchase.Probes, key)
			}
		}
		b.spending.Buy(c, n.Offers, wanted[n.ID])
	}
}
