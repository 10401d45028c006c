package planner

// least returns the least count on any node that a spread group over host names considers. While nodes are being planned a new node
// may always be added, with a count of zero; when the placements are put in order all nodes are known.
func (r *run) least(g *group, minDomains int) int {
	if !r.ordering && (g.hostFromZero || len(r.nodes) > r.existing) {
		return 0
	}
	if g.lowest.nodes == 0 {
		r.findLowest(g)
	}
	if g.lowest.domains < minDomains {
		return 0
	}
	return max(g.lowest.count, 0)
}

func (r *run) findLowest(g *group) {
	g.lowest = lowest{count: -1}
	each := func(d int) {
		g.lowest.domains++
		switch c := g.counts[d]; {
		case g.lowest.count < 0 || c < g.lowest.count:
			g.lowest.count, g.lowest.nodes = c, 1
		case c == g.lowest.count:
			g.lowest.nodes++
		}
	}
	for d := range g.nodes {
		each(d)
	}
	for _, n := range r.nodes[r.existing:] {
		if !n.gone && r.counts(g, n) {
			each(n.index)
		}
	}
}
