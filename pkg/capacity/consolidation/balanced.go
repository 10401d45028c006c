package consolidation

import "slices"

// balancedThreshold is the lowest score that a move may have with the policy Balanced: 1/k, where Karpenter's k is 2.
const balancedThreshold = 0.5

// totals are the price of a pool's nodes together, in $/h, and their disruption cost: Karpenter's policy Balanced compares a move with them. Nodes
// whose price is unknown count in neither: Karpenter counts them with a price of zero, which makes every move look better than it is.
type totals struct{ cost, disruption float64 }

// perDisruption returns what the pool's nodes cost, in $/h, for each 1 of disruption cost.
func (t totals) perDisruption() float64 {
	if t.disruption <= 0 {
		return 0
	}
	return t.cost / t.disruption
}

func totalsOf(candidates []Candidate) map[string]totals {
	out := map[string]totals{}
	for i := range candidates {
		x := &candidates[i]
		if !known(x.Price) {
			continue
		}
		t := out[x.Pool]
		t.cost += x.Price
		t.disruption += x.disruption()
		out[x.Pool] = t
	}
	return out
}

// balancedScore returns the lowest score that a move has in one of its pools with the policy Balanced; scored: there is one. The score is the
// part of the pool's cost that is saved, over the part of the pool's disruption. What a move of nodes of several pools saves is divided among
// the pools in proportion to what their nodes cost.
func (c *cluster) balancedScore(nodes []int32, saves float64, all map[string]totals) (lowest float64, scored bool) {
	if !slices.ContainsFunc(nodes, func(at int32) bool { return c.o.Pools[c.nodes[at].c.Pool].Consolidate == Balanced }) {
		return 0, false
	}
	pools := map[string]totals{}
	cost := 0.0
	var order []string
	for _, at := range nodes {
		x := c.nodes[at].c
		t, seen := pools[x.Pool]
		if !seen {
			order = append(order, x.Pool)
		}
		t.cost += c.nodes[at].price
		t.disruption += x.disruption()
		pools[x.Pool] = t
		cost += c.nodes[at].price
	}
	for _, name := range order {
		policy := c.o.Pools[name]
		if policy.Consolidate != Balanced {
			continue
		}
		t, total, own := pools[name], all[name], saves
		if len(pools) > 1 && cost > 0 {
			own = saves * t.cost / cost
		}
		score := 0.0
		if own > 0 && total.cost > 0 && total.disruption > 0 {
			score = (own / total.cost) / (t.disruption / total.disruption)
		}
		if !scored || score < lowest {
			lowest, scored = score, true
		}
	}
	return lowest, scored
}
