package capacity

import (
	"cmp"
	"slices"
	"time"
)

// StaticNode is a node of a static pool, with what matters when the pool is scaled down.
type StaticNode struct {
	Claim     string
	CreatedAt time.Time
	// Launched: an instance exists.
	Launched bool
	// Occupied: it has pods that would need another node. Cost is the disruption cost of evicting them, which falls as the node's
	// expiration comes closer.
	Occupied bool
	Cost     float64
	// Protected: the node or a pod on it asks not to be disrupted.
	Protected bool
	// Drifted: the node is to be replaced.
	Drifted bool
}

// Surplus returns the n nodes to remove from a static pool with too many: first those that are not launched, then empty ones, then
// those with the lowest disruption cost; nodes that ask not to be disrupted come last. Of the empty ones, and of the others, the drifted ones
// come first, because they would have to be replaced. Among equals the youngest is removed.
func Surplus(nodes []StaticNode, n int) []string {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b StaticNode) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.drift(b), cmp.Compare(a.Cost, b.Cost), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Claim, b.Claim))
	})
	var out []string
	for _, s := range nodes[:min(max(n, 0), len(nodes))] {
		out = append(out, s.Claim)
	}
	return out
}

// rank is lower for nodes that are removed earlier, whatever their cost.
func (s *StaticNode) rank() int {
	switch {
	case !s.Launched:
		return 0
	case s.Protected:
		return 3
	case s.Occupied:
		return 2
	}
	return 1
}

// drift orders a drifted node before one that isn't.
func (s *StaticNode) drift(than StaticNode) int {
	switch {
	case s.Drifted == than.Drifted:
		return 0
	case s.Drifted:
		return -1
	}
	return 1
}
