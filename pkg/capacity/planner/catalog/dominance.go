package catalog

import (
	"cmp"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// NonDominated returns the candidates that no other one can replace: one that is as good in all respects and no dearer. may reports whether the
// candidate better can replace b as far as labels are concerned.
func (c *Catalog) NonDominated(candidates []int, may func(better, b int) bool) []int {
	candidates = slices.Clone(candidates)
	slices.SortStableFunc(candidates, func(a, b int) int {
		return cmp.Or(cmp.Compare(c.Candidates[a].Price, c.Candidates[b].Price), slices.Compare(c.RoomOf(b), c.RoomOf(a)), cmp.Compare(a, b))
	})
	var kept []int
next:
	for _, b := range candidates {
		for _, k := range kept {
			if c.replaces(k, b) && may(k, b) {
				continue next
			}
		}
		kept = append(kept, b)
	}
	return kept
}

// Lasting reports whether the candidate's capacity is likely to be available for a while: it wasn't unavailable a short time ago (Unsettled), and the
// cloud doesn't recommend moving off it (Leaving).
func (x *Candidate) Lasting() bool { return !x.Offer.Unsettled && !x.Offer.Leaving }

// replaces reports whether candidate a, which costs no more than b, has at least b's capacity in each dimension, takes no more from any budget, and
// is Lasting if b is.
func (c *Catalog) replaces(a, b int) bool {
	if c.Candidates[b].Lasting() && !c.Candidates[a].Lasting() {
		return false
	}
	if c.Candidates[a].Room != c.Candidates[b].Room {
		ra, rb := c.RoomOf(a), c.RoomOf(b)
		for d := range ra {
			if ra[d] < rb[d] {
				return false
			}
		}
	}
	for _, use := range c.Uses(a) {
		if !slices.ContainsFunc(c.Uses(b), func(o packing.Use) bool { return o.Budget == use.Budget && o.Amount >= use.Amount }) {
			return false
		}
	}
	return true
}
