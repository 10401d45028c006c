package capacity

import (
	"math"
	"slices"
	"strings"
)

// Commitment is money that is paid for on-demand instances per hour whether it is used or not, such as an AWS Savings Plan.
type Commitment struct {
	Name string
	// MicroDollars is how much is committed, in millionths of a dollar per hour.
	MicroDollars int64
	// RateFactor is what an instance uses of the commitment as a fraction of its list price: 0 < f <= 1.
	RateFactor float64
	// Families are the instance families ("m5") that may use it; empty: all.
	Families []string
}

// MicroDollarsOf returns an amount of dollars in millionths, rounded down.
func MicroDollarsOf(dollars float64) int64 {
	const most = 1 << 53 // beyond that a float64 has no whole numbers
	return int64(math.Floor(min(dollars*1e6+1e-3, most)))
}

// Use returns how much of the commitment an instance bought this way uses, in millionths of a dollar per hour, rounded up; false: it can't use it.
// Only instances on demand on shared hardware can, and only if their price is what the cloud asks for: no overlay has set it.
func (c *Commitment) Use(instanceType string, o *Offer) (microDollars int64, ok bool) {
	if o.CapacityType != CapacityTypeOnDemand || !o.Shared() || o.PriceOverlaid || !(o.Price >= 0) || math.IsInf(o.Price, 1) {
		return 0, false
	}
	if family, _, _ := strings.Cut(instanceType, "."); len(c.Families) > 0 && !slices.Contains(c.Families, family) {
		return 0, false
	}
	return int64(math.Ceil(o.Price*c.RateFactor*1e6 - 1e-3)), true
}

// InOrder returns commitments in the order in which nodes use them: those for certain families before those for all.
func InOrder(commitments []Commitment) []Commitment {
	out := slices.Clone(commitments)
	slices.SortStableFunc(out, func(a, b Commitment) int {
		switch general, other := len(a.Families) == 0, len(b.Families) == 0; {
		case general == other:
			return 0
		case general:
			return 1
		}
		return -1
	})
	return out
}

// Coverage says which nodes commitments cover at a moment (package commitments computes it). It must not be changed. nil: there are no commitments.
type Coverage struct {
	// Commitments are in the order in which nodes use them: a node is covered by the first that it may use and of
	// which enough is left.
	Commitments []Commitment
	// Used is how much of each commitment nodes use, in millionths of a dollar per hour.
	Used []int64
	// Nodes are the nodes that are covered, by the names of their NodeClaims, and of their Nodes as far as these are known.
	Nodes map[string]CoveredNode
}

// CoveredNode is how a node is covered.
type CoveredNode struct {
	Commitment int   // index into Coverage.Commitments
	Use        int64 // what the node uses of the commitment, in millionths of a dollar per hour
	// List is the node's list price, in $/h.
	List float64
}

// Left returns what is left of a commitment, in millionths of a dollar per hour.
func (c *Coverage) Left(commitment int) int64 {
	return max(0, c.Commitments[commitment].MicroDollars-c.Used[commitment])
}

// Room reports whether anything is left of any commitment.
func (c *Coverage) Room() bool {
	if c == nil {
		return false
	}
	for i := range c.Commitments {
		if c.Left(i) > 0 {
			return true
		}
	}
	return false
}

// Of returns the name of the commitment that covers a node, which is given by its name or its NodeClaim's; empty: none does.
func (c *Coverage) Of(name string) string {
	if c == nil {
		return ""
	}
	if n, ok := c.Nodes[name]; ok {
		return c.Commitments[n.Commitment].Name
	}
	return ""
}

// Without returns the coverage once these nodes are gone. names has each of them once, by its name or its NodeClaim's. What they leave of the
// commitments covers no other node yet.
func (c *Coverage) Without(names []string) *Coverage {
	if c == nil {
		return nil
	}
	out := &Coverage{Commitments: c.Commitments, Used: slices.Clone(c.Used), Nodes: c.Nodes}
	for _, name := range names {
		if n, ok := c.Nodes[name]; ok {
			out.Used[n.Commitment] -= n.Use
		}
	}
	return out
}

// PlannedUse is what a planned node is going to use of a commitment. The zero value: the node uses none.
type PlannedUse struct {
	Commitment string // its name
	// Use is the most that any of the node's offerings uses, in millionths of a dollar per hour, List the highest of their prices, in $/h.
	Use  int64
	List float64
}

// With returns the coverage once a planned node uses its commitment, too. If not enough is left of that, ok is false and the coverage is unchanged.
func (c *Coverage) With(u *PlannedUse) (with *Coverage, ok bool) {
	if c == nil {
		return nil, false
	}
	i := slices.IndexFunc(c.Commitments, func(m Commitment) bool { return m.Name == u.Commitment })
	if i < 0 || u.Use > c.Left(i) {
		return c, false
	}
	out := &Coverage{Commitments: c.Commitments, Used: slices.Clone(c.Used), Nodes: c.Nodes}
	out.Used[i] += u.Use
	return out, true
}
