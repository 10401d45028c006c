package planner

// coarseAllows reports whether one more pod of the batch may be placed in the given domains, considering all topology keys but the host
// name.
func (r *run) coarseAllows(u *podBatch, where site) bool {
	for i := range u.owned {
		if o := &u.owned[i]; !o.group.host && !r.satisfied(u, o, where) {
			return false
		}
	}
	for _, g := range u.blocked {
		if g.host {
			continue
		}
		if d, ok := where.of(g); ok && g.owners[d] > 0 {
			return false
		}
	}
	return true
}

func (r *run) satisfied(u *podBatch, o *owned, where site) bool {
	d, ok := where.of(o.group)
	switch o.kind {
	case spread:
		return ok && o.group.counts[d]+selfCount(o) <= o.skew+o.group.least(o.minDomains, d)
	case affinity:
		return ok && (o.group.counts[d] > 0 || r.first(u))
	case antiAffinity:
		return !ok || o.group.counts[d] == 0
	}
	return true
}

func selfCount(o *owned) int {
	if o.self {
		return 1
	}
	return 0
}

// first reports whether a pod of the batch satisfies its own affinity terms as the first pod that matches them: it matches all of them
// itself, and no other pod matches any.
func (r *run) first(u *podBatch) bool {
	for i := range u.owned {
		if o := &u.owned[i]; o.kind == affinity && (!o.self || o.group.total > 0) {
			return false
		}
	}
	return true
}

// hostRoom returns how many more pods of the batch, at most k, a node may take under the rules among pods of one node.
func (r *run) hostRoom(u *podBatch, n *node, k int) int {
	for i := range u.owned {
		o := &u.owned[i]
		g := o.group
		if !g.host {
			continue
		}
		if o.kind == affinity {
			if g.counts[n.index] == 0 {
				if !r.first(u) {
					return 0
				}
				k = min(k, 1) // from the second pod on the count is positive
			}
			continue
		}
		limit, _ := o.limit()
		if o.kind == spread && g.counts[n.index]+k > limit {
			limit += r.hostLeast(g, o.minDomains)
		}
		if o.self {
			k = min(k, max(0, limit-g.counts[n.index]))
		} else if g.counts[n.index] > limit {
			return 0
		}
	}
	for _, g := range u.blocked {
		if g.host && g.owners[n.index] > 0 {
			return 0
		}
	}
	return k
}

// hostLeast returns the least count on any node that a spread group over host names considers. While nodes are being planned a new node
// may always be added, with a count of zero; when the placements are put in order all nodes are known.
func (r *run) hostLeast(g *group, minDomains int) int {
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

// avoidDaemons removes the batch's candidates with daemons that its pods must not share a node or domain with, by anti-affinity of either
// side.
func (r *run) avoidDaemons(u *podBatch) {
	avoid := func(g *group, daemons []int) {
		for _, d := range daemons {
			for b := range r.catalog.candidates {
				if _, ok := r.catalog.label(b, g.key); u.candidates.Has(b) && (ok || g.host) && r.daemons.candidates[d].Has(b) {
					u.candidates.Clear(b)
				}
			}
		}
	}
	for i := range u.owned {
		if o := &u.owned[i]; o.kind == antiAffinity {
			avoid(o.group, o.group.daemons)
		}
	}
	for _, g := range u.blocked {
		avoid(g, g.repelling)
	}
}
