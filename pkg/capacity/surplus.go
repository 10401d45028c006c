package capacity

import (
	"cmp"
	"slices"
	"time"
)

// StaticNode is a node of a static pool, as far as it matters for the choice of the one that goes.
type StaticNode struct {
	Claim     string
	CreatedAt time.Time
	// Launched: there is an instance.
	Launched bool
	// Occupied: pods are there that would have to go elsewhere. Cost is what ending them early costs, the less the sooner the
	// node would go anyway.
	Occupied bool
	Cost     float64
	// Protected: it, or a pod there, asks not to be disrupted.
	Protected bool
}

// Surplus are the n nodes of a static pool that go when it has that many too many (LI-3): first those that are not launched, then
// the empty ones, then those whose pods cost least; those that ask not to be disrupted last. Of equals the youngest goes.
func Surplus(nodes []StaticNode, n int) []string {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b StaticNode) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Cost, b.Cost), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Claim, b.Claim))
	})
	var out []string
	for _, s := range nodes[:min(max(n, 0), len(nodes))] {
		out = append(out, s.Claim)
	}
	return out
}

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
