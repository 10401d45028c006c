package consolidation

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// leavingMost: where the cloud recommends to leave spot capacity, the new nodes may cost this many times the price of the old ones, and no more,
	// since the cloud may not reclaim the old ones after all.
	leavingMost = 1.5
	// settlesAfter is how long spot capacity has to be available again until it is no longer Unsettled. What a return to spot capacity would have
	// saved in this time counts as accrued.
	settlesAfter = 30 * time.Minute
)

// rule is what may be bought in place of some nodes, apart from what their pods allow.
type rule struct {
	// settled: only capacity that has been available for a while. A launch in other capacity is likelier to be refused, and if it is one of several for
	// a move, the others are launched in vain. leaves: nodes leave spot capacity, so only settled spot capacity and reserved capacity may be bought.
	settled, leaves bool
}

// ruleOf returns the rule for emptying nodes together.
func (c *cluster) ruleOf(from []int32) (r rule) {
	for _, at := range from {
		if x := c.nodes[at].c; x != nil {
			r.leaves = r.leaves || x.Forced == RebalanceRecommended
			r.settled = r.settled || x.Forced == "" || !x.ReturnsAt.IsZero()
		}
	}
	return r
}

// most returns what new nodes may cost in place of nodes of this price that have to go.
func (r rule) most(price float64) float64 {
	if r.leaves {
		return price * leavingMost
	}
	return math.Inf(1)
}

// allows reports whether an offering may be bought.
func (r rule) allows(o *capacity.Offer) bool {
	switch {
	case o.CapacityType == capacity.CapacityTypeReserved:
		return true
	case o.CapacityType != capacity.CapacityTypeSpot && r.leaves:
		return false
	}
	return !r.leaves && !r.settled || !o.Unsettled && !o.Leaving
}

// allowed reports whether a candidate of the catalog may be bought.
func (m *market) allowed(r rule, b int) bool {
	return r == rule{} || r.allows(&m.catalog.Candidates[b].Offer)
}

// returns reports whether a move launches spot capacity in place of nodes all of which were bought on demand only because no spot capacity was
// available (Candidate.ReturnsAt). why is why the move can't be made now; without a kind: it can.
func (s *pass) returns(d *draft) (all bool, why Kept) {
	m := s.plan.c.market
	spot := slices.ContainsFunc(d.launches, func(l launch) bool { return m.spot(s.plan.c.nodes[l.at].offer) })
	all = spot
	for _, at := range d.nodes {
		x := s.plan.c.nodes[at].c
		switch policy, _ := s.plan.c.policy(x); {
		case x.ReturnsAt.IsZero():
			all = false
		case spot && s.plan.c.o.Now.Before(x.ReturnsAt):
			return false, Kept{Kind: WantOfSpot, Until: x.ReturnsAt}
		case spot && slices.ContainsFunc(d.launches, func(l launch) bool { return !m.lasting(l) }):
			return false, Kept{Kind: WantOfSpot}
		case !spot && policy.young(x, s.plan.c.o.Now):
			return false, Kept{Kind: Young, Until: x.CreatedAt.Add(policy.FirstHour)}
		}
	}
	return all, Kept{}
}

// lasting reports whether nothing is known against the capacity of a new node.
func (m *market) lasting(l launch) bool {
	return !slices.ContainsFunc(l.offers, func(b int) bool { return !m.catalog.Candidates[b].Lasting() })
}

// young reports whether the first hour of a node isn't over.
func (p *Policy) young(x *Candidate, now time.Time) bool {
	return p.RestartCost > 0 && now.Before(x.CreatedAt.Add(p.FirstHour))
}

// wantOfSpot is the text for a node that waits for spot capacity.
func (k *Kept) wantOfSpot() string {
	text := "it was bought on demand for want of spot capacity, and "
	if k.Until.IsZero() {
		return text + fmt.Sprintf("no cheaper spot capacity that fits has been available for %d minutes", int(settlesAfter.Minutes()))
	}
	return text + "is replaced " + k.until() + " at the earliest"
}
