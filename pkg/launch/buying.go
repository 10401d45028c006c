package launch

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// ask removes from a proposal the nodes that the spending guard doesn't let us buy.
func (b *purchases) ask(p *provisioning.Proposal, out *provisioning.Outcome) {
	if b.spending == nil || len(p.Plan.Nodes) == 0 {
		return
	}
	if p.For != capacity.ForPods {
		b.allow(p, out)
	}
	remove(p.Plan, b.Preview(p), out)
}

// allow asks the spending guard about nodes that are bought for no pods, as the planner does about others: which offerings open breakers stop, and
// whether the purchase is a probe that is due. A probe keeps one node of the plan; if nothing may be bought, the plan keeps none.
func (b *purchases) allow(p *provisioning.Proposal, out *provisioning.Outcome) {
	first, workloads := p.Plan.Nodes[0], []guard.Workload{p.Workload}
	node, held := b.spending.ForPool(first.Pool, first, p.Workload)
	left := len(p.Plan.Nodes)
	switch {
	case held.None:
		left = 0
	case len(held.Probe) > 0:
		left, p.Terms.Lifted, p.Terms.Probe = 1, held.Probe, held.Probe[0]
	}
	offers := b.spending.Check(left, b.claims.All).Spare(first.Pool, node.Offers, workloads)
	gone := map[string]capacity.Removal{}
	for i, n := range p.Plan.Nodes {
		n.Offers = offers
		if i >= left {
			gone[n.ID] = capacity.Removal{Message: held.Why}
		}
	}
	remove(p.Plan, gone, out)
	out.Why, out.Paused = held.Why, held.None
}

// wantedOn returns, by the ID of each new node, the workloads that it is bought for and, of those pods that exist already, the workload of each.
func (b *purchases) wantedOn(p *provisioning.Proposal) (map[string][]guard.Workload, map[string]map[types.UID]guard.Workload) {
	pod := p.Terms.Pod
	if pod == nil {
		pod = b.pending.Get
	}
	workloads, wanted := b.spending.WantedOn(p.Plan, pod)
	if p.For != capacity.ForPods {
		for _, n := range p.Plan.Nodes {
			workloads[n.ID] = []guard.Workload{p.Workload}
		}
	}
	return workloads, wanted
}

// Preview returns the nodes of a proposal that the spending guard doesn't let us buy, and why.
func (b *purchases) Preview(p *provisioning.Proposal) map[string]capacity.Removal {
	if b.spending == nil || len(p.Plan.Nodes) == 0 {
		return nil
	}
	workloads, _ := b.wantedOn(p)
	a := b.spending.Check(len(p.Plan.Nodes), b.claims.All)
	a.Moves = p.Terms.Moves
	gangs := map[string]string{} // by node
	for _, pl := range p.Plan.Placements {
		if pl.Gang != nil {
			gangs[pl.Node] = pl.Gang.Key
		}
	}
	out := map[string]capacity.Removal{}
	for _, n := range p.Plan.Nodes {
		if p.For == capacity.ForPods { // nodes for no pods keep the offerings that allow has given to all of them
			n.Offers = a.Spare(n.Pool, n.Offers, workloads[n.ID])
		}
		if why, soon := a.Refuses(n.Pool, n.Offers, workloads[n.ID], p.Terms.Lifted, p.Terms.Urgent, gangs[n.ID]); why != "" {
			out[n.ID] = capacity.Removal{Message: why, Soon: soon}
		}
	}
	return out
}

// record tells the spending guard what is bought, and records on each claim which workloads it is bought for and which breakers it probes.
func (b *purchases) record(p *provisioning.Proposal, claims map[string]*capacity.Claim) {
	if b.spending == nil || len(p.Plan.Nodes) == 0 {
		return
	}
	round, terms := b.namer.randomName("r"), p.Terms
	workloads, wanted := b.wantedOn(p)
	for _, n := range p.Plan.Nodes {
		c := claims[n.ID]
		c.Purchase = &guard.Purchase{Round: round, Workloads: workloads[n.ID], Moves: terms.Urgent || terms.Moves || terms.Booked}
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
