package planner

import (
	"cmp"
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// emit returns the plan.
func (r *run) emit(order []binding) outcome {
	out := outcome{Plan: &capacity.Plan{}}
	if r.opts.NodeSurcharge == 0 && len(r.opts.PriceFactor) == 0 && !r.catalog.Surcharged && !r.tookBack && !r.resumes {
		out.LowerBound = r.bound // otherwise the bound is not comparable with the cost, or counts pods whose placements were removed
	}
	ids := make(map[*node]string, len(r.nodes))
	nodes := make([]capacity.PlannedNode, 0, len(r.nodes)-r.existing) // one allocation for all
	placements := 0
	for _, b := range order {
		placements += b.n
	}
	out.Placements = make([]capacity.Placement, 0, placements)
	for _, n := range r.nodes {
		if !n.planned() {
			ids[n] = n.view.Name
			continue
		}
		if n.gone {
			continue
		}
		p := n.shape.template
		if n.lost {
			p.Requests = r.requests(n) // less than the shape was found for
		}
		p.ID = fmt.Sprintf("planned/%d", len(out.Nodes)+1) // a Node's name has no slash
		p.Filled = r.filled(n)
		ids[n] = p.ID
		nodes = append(nodes, p)
		out.Nodes = append(out.Nodes, &nodes[len(nodes)-1])
		out.CostPerHour += p.Price
		if p.CapacityType == capacity.CapacityTypeReserved {
			out.LowerBound = 0 // reserved capacity is paid for already, and would be compared with list prices
		}
		if p.Covered.Commitment != "" {
			out.LowerBound = 0 // likewise
		}
		if p.Price < r.catalog.Candidates[n.candidate].Offer.Price {
			out.LowerBound = 0 // minValues require special hardware that is cheaper than what was packed
		}
		out.compared += r.catalog.Candidates[n.shape.candidates[0]].Price
	}
	for _, n := range r.nodes {
		for _, s := range n.content {
			out.dropped += s.level * s.n
		}
	}
	groups := r.joined()
	next := make([]int, len(r.podBatches))
	for _, b := range order {
		for range b.n {
			h := b.podBatch.holders[next[b.podBatch.index]]
			next[b.podBatch.index]++
			out.Placements = append(out.Placements, capacity.Placement{Class: cmp.Or(h.class, b.podBatch.Class), Pod: h.pod, Owner: h.owner, Node: ids[b.node], Group: groups[b.podBatch.index], Gang: b.podBatch.gang})
		}
	}
	for _, u := range r.podBatches {
		if rest := u.holders[next[u.index]:]; len(rest) > 0 {
			out.Refused = append(out.Refused, r.refusal(u, rest))
		}
	}
	if len(r.opts.Explain) > 0 {
		out.Explanations = r.explain(out.Plan, ids)
	}
	return out
}

// filled returns PlannedNode.Filled of a planned node.
func (r *run) filled(n *node) float64 {
	paid := 0.0
	for _, s := range n.content {
		if s.podBatch.value <= 0 {
			return 0
		}
		paid += s.podBatch.value * float64(s.n)
	}
	return min(1, paid/max(r.catalog.Candidates[n.shape.candidates[0]].Price, 1e-9))
}

// joined returns the number of each batch's group (Placement.Group), by the batch's index: batches are in one group if their placements depend on
// each other, by a constraint (topology.Constraint.Depends) or by a gang. 0: no group.
func (r *run) joined() []int {
	parent := make([]int, len(r.podBatches))
	for i := range parent {
		parent[i] = i
	}
	var find func(int) int
	find = func(i int) int {
		if parent[i] != i {
			parent[i] = find(parent[i])
		}
		return parent[i]
	}
	depends := make([]bool, len(r.podBatches))
	join := func(a, b int) {
		depends[a], depends[b] = true, true
		parent[find(max(a, b))] = find(min(a, b))
	}
	members := map[*topology.Group][]int{}
	gangs := map[string]int{}
	for _, u := range r.podBatches {
		if u.left == len(u.holders) {
			continue
		}
		for _, g := range u.Member {
			members[g] = append(members[g], u.index)
		}
		if u.gang != nil {
			if first, ok := gangs[u.gang.Key]; ok {
				join(first, u.index)
			} else {
				gangs[u.gang.Key] = u.index
				join(u.index, u.index)
			}
		}
	}
	for _, u := range r.podBatches {
		if u.left == len(u.holders) {
			continue
		}
		for i := range u.Owned {
			o := &u.Owned[i]
			if !o.Depends() {
				continue
			}
			join(u.index, u.index)
			for _, m := range members[o.Group] {
				join(u.index, m)
			}
		}
	}
	numbers := map[int]int{}
	out := make([]int, len(r.podBatches))
	for i := range out {
		if !depends[i] {
			continue
		}
		root := find(i)
		if numbers[root] == 0 {
			numbers[root] = len(numbers) + 1
		}
		out[i] = numbers[root]
	}
	return out
}
