package consolidation

import (
	"cmp"
	"slices"
)

// choose proposes the moves of the plan that are due, best first, within the budgets, and says why the others are not.
func (s *pass) choose(drafts []*draft) {
	slices.SortStableFunc(drafts, func(a, b *draft) int {
		return cmp.Or(s.urgency(b)-s.urgency(a), s.turnOf(a)-s.turnOf(b), cmp.Compare(b.Saves/b.Disruption, a.Saves/a.Disruption))
	})
	for _, d := range drafts {
		if reason := s.forcedBy(d); reason != "" && d.short == "" {
			d.Ceiling = s.plan.c.ruleOf(d.nodes).most(d.Ceiling)
			s.propose(d, reason)
			continue
		}
		why := s.notDue(d)
		if why.Kind != "" {
			for _, at := range d.nodes {
				if s.plan.kept[at].Kind == "" {
					s.plan.kept[at] = why
				}
			}
			continue
		}
		s.propose(d, Underutilized)
	}
}

// forcedBy returns why a move has to be made; empty: it needn't.
func (s *pass) forcedBy(d *draft) Reason {
	for _, at := range d.nodes {
		if r := s.plan.c.nodes[at].c.Forced; r != "" {
			return r
		}
	}
	return ""
}

func (s *pass) urgency(d *draft) int {
	switch reason := s.forcedBy(d); {
	case reason == "":
		return 0
	case reason.Budgeted():
		return 1
	}
	return 2
}

// turnOf returns the place of a move among the moves that have to be made for reasons with a budget; 0: it is none of these.
func (s *pass) turnOf(d *draft) int {
	first := 0
	for _, at := range d.nodes {
		if n := s.turn[at]; n > 0 && (first == 0 || n < first) {
			first = n
		}
	}
	return first
}

// notDue returns why a move is not made now. A Kept without Kind means that the move is made now.
func (s *pass) notDue(d *draft) Kept {
	c := s.plan.c
	total := 0.0
	free := true
	for _, at := range d.nodes {
		total += c.nodes[at].price
		policy, _ := c.policy(c.nodes[at].c)
		free = free && policy.RestartCost == 0
	}
	if d.short != "" {
		return Kept{Kind: OtherReason, Message: d.short}
	}
	for _, l := range d.launches { // a move that only saves money waits until such nodes have proved to work
		pool := c.market.pool(c.nodes[l.at].offer).Name
		if policy := c.o.Pools[pool]; policy.Canary != "" {
			return Kept{Kind: RollOut, Message: policy.unproven(pool)}
		}
	}
	returns, why := s.returns(d)
	if why.Kind != "" {
		return why
	}
	if d.Saves <= total*lowest {
		return Kept{Kind: Dearer, Price: total, Cheapest: total - d.Saves}
	}
	for _, at := range d.nodes { // this is lost while the nodes are kept, also if the move is not made for another reason
		s.out.Rates[c.nodes[at].c.Node] = d.Saves * c.nodes[at].price / total
	}
	for _, at := range d.nodes {
		if s.plan.kept[at].Kind != "" {
			return s.plan.kept[at]
		}
	}
	if score, scored := c.balancedScore(d.nodes, d.Saves, s.plan.totals); scored && score < balancedThreshold {
		return Kept{Kind: Unbalanced, Saves: d.Saves, Score: score, Threshold: balancedThreshold}
	}
	accrued := d.Accrued
	if returns {
		accrued = max(accrued, d.Saves*settlesAfter.Hours())
	}
	if !free && accrued < d.Cost {
		return Kept{Kind: Paying, Saves: d.Saves, Accrued: accrued, Cost: d.Cost}
	}
	if !s.spend(d.nodes, Underutilized) {
		return Kept{Kind: Budget, Reason: Underutilized, Saves: d.Saves, Accrued: d.Accrued, Cost: d.Cost}
	}
	return Kept{}
}
