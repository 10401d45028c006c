package catalog

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// Budgets numbers everything that candidates take from: limits, capacity reservations and commitments. Each of these is a budget, and its number is
// its index in what Catalog.Left returns.
type Budgets struct {
	n        int         // how many budgets there are
	reserved map[int]int // how many instances capacity reservations have left, by number of their budget
	// Total is the limit of all pools together, nil: there is none. OfAll has the numbers of its budgets, by resource.
	Total *capacity.Total
	OfAll map[corev1.ResourceName]int
	// coverage says what is left of commitments. committed is the number of each commitment's budget, by position in Coverage.Commitments; -1: no
	// candidate uses the commitment.
	coverage  *capacity.Coverage
	committed []int
}

// Within is what holds for all pools together.
type Within struct {
	// Total is their limit; nil: there is none.
	Total *capacity.Total
	// Coverage says what is left of commitments; nil: there are none. For each commitment of which something is left there are more candidates: those
	// that it pays for.
	Coverage *capacity.Coverage
}

// Left returns what is left of the budgets, that is of limits, capacity reservations and commitments.
func (c *Catalog) Left() []int64 {
	out := make([]int64, c.Budgets.n)
	for _, p := range c.Pools {
		for name, budget := range p.LimitBudgets {
			out[budget] = capacity.SatAdd(p.Limits[name], capacity.SatMul(p.Used[name], -1))
		}
	}
	for name, budget := range c.Budgets.OfAll {
		out[budget] = c.Budgets.Total.Left(name)
	}
	for budget, n := range c.Budgets.reserved {
		out[budget] = int64(n)
	}
	for i, budget := range c.Budgets.committed {
		if budget >= 0 {
			out[budget] = c.Budgets.coverage.Left(i)
		}
	}
	return out
}

// addCovered adds a copy of the last candidate for each commitment that may pay for it, at a price close to zero.
func (c *Catalog) addCovered(opts *capacity.Options) {
	if c.Budgets.coverage == nil {
		return
	}
	plain := len(c.Candidates) - 1
	x := c.Candidates[plain]
	name := c.TypeOf(plain).Name
	for i := range c.Budgets.coverage.Commitments {
		if _, ok := c.Budgets.coverage.Commitments[i].Use(name, &x.Offer); ok && c.Budgets.coverage.Left(i) > 0 {
			x.covered, x.plain = i+1, plain
			x.Price = opts.PriceOf(name, x.Offer.Price*coveredShare*(1+laterCosts*float64(i)))
			c.Candidates = append(c.Candidates, x)
		}
	}
}

// Covered reports whether a commitment pays for candidate b.
func (c *Catalog) Covered(b int) bool { return c.Candidates[b].covered > 0 }

// Paid reports whether candidate b is paid for already, because it is reserved or a commitment pays for it. Only few such nodes can be had.
func (c *Catalog) Paid(b int) bool {
	return c.Covered(b) || c.Candidates[b].Offer.CapacityType == capacity.CapacityTypeReserved
}

// Plain returns the candidate for the same offering that no commitment pays for.
func (c *Catalog) Plain(b int) int {
	if c.Covered(b) {
		return c.Candidates[b].plain
	}
	return b
}

// CommitmentUse returns the budget of the commitment that pays for candidate b, with what the candidate uses of it; false: none pays for it.
func (c *Catalog) CommitmentUse(b int) (use packing.Use, ok bool) {
	x := &c.Candidates[b]
	if x.covered == 0 {
		return packing.Use{}, false
	}
	return x.uses[len(x.uses)-1], true
}

// CommitmentBudget returns the number of a commitment's budget; false: no candidate uses it.
func (c *Catalog) CommitmentBudget(commitment int) (budget int, ok bool) {
	if commitment >= len(c.Budgets.committed) || c.Budgets.committed[commitment] < 0 {
		return 0, false
	}
	return c.Budgets.committed[commitment], true
}

// Limited reports whether a limit applies to the pool: its own, or that of all pools.
func (c *Catalog) Limited(p *PoolOffers) bool { return len(p.LimitBudgets)+len(c.Budgets.OfAll) > 0 }

// OfTotal reports whether a budget is one of the limit of all pools.
func (c *Catalog) OfTotal(budget int) bool {
	for _, b := range c.Budgets.OfAll {
		if b == budget {
			return true
		}
	}
	return false
}

// addUses sets what each candidate takes from its pool's limits, from that of all pools, and from its capacity reservation or commitment.
func (c *Catalog) addUses() {
	c.Budgets.reserved = map[int]int{}
	if c.Budgets.coverage != nil {
		c.Budgets.committed = slices.Repeat([]int{-1}, len(c.Budgets.coverage.Commitments))
	}
	reservations := map[string]int{}
	var uses []packing.Use
	for b := range c.Candidates {
		x := &c.Candidates[b]
		p, typ := c.Pools[x.Pool], c.TypeOf(b)
		if b == 0 || c.Candidates[b-1].Pool != x.Pool || c.TypeOf(b-1) != typ {
			uses = nil
			for _, budgets := range []map[corev1.ResourceName]int{p.LimitBudgets, c.Budgets.OfAll} {
				for _, name := range slices.Sorted(maps.Keys(budgets)) {
					amount := typ.Capacity[name]
					if name == capacity.ResourceNodes {
						amount = 1
					}
					uses = append(uses, packing.Use{Budget: budgets[name], Amount: amount})
				}
			}
		}
		x.uses = uses
		if x.Offer.CapacityType == capacity.CapacityTypeReserved {
			at, known := reservations[x.Offer.ReservationID]
			if !known {
				at = c.Budgets.n
				c.Budgets.n++
				reservations[x.Offer.ReservationID], c.Budgets.reserved[at] = at, x.Offer.Remaining
			}
			x.uses = append(slices.Clip(uses), packing.Use{Budget: at, Amount: 1})
		}
		if x.covered > 0 {
			if c.Budgets.committed[x.covered-1] < 0 {
				c.Budgets.committed[x.covered-1] = c.Budgets.n
				c.Budgets.n++
			}
			amount, _ := c.Budgets.coverage.Commitments[x.covered-1].Use(typ.Name, &x.Offer)
			x.uses = append(slices.Clip(uses), packing.Use{Budget: c.Budgets.committed[x.covered-1], Amount: amount})
		}
	}
}

// PaidFrom returns what candidate b takes of its capacity reservation or commitment; false: it has none.
func (c *Catalog) PaidFrom(b int) (use packing.Use, ok bool) {
	if use, ok = c.CommitmentUse(b); ok {
		return use, true
	}
	for _, use := range c.Candidates[b].uses {
		if _, ok := c.Budgets.reserved[use.Budget]; ok {
			return use, true
		}
	}
	return packing.Use{}, false
}

// Uses returns what candidate b takes of the budgets.
func (c *Catalog) Uses(b int) []packing.Use { return c.Candidates[b].uses }
