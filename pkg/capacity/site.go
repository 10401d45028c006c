package capacity

// site holds the topology domain of a node, or of a node to be launched, for each key in topology.keys; -1 if it lacks the label.
type site []int

// of returns the domain for a group over a label.
func (s site) of(g *group) (domain int, ok bool) {
	d := s[g.slot]
	return d, d >= 0
}

// site returns the site for labels.
func (t *topology) site(label func(key string) (string, bool)) site {
	out := make(site, len(t.keys))
	for i, key := range t.keys {
		out[i] = -1
		if v, ok := label(key); ok {
			out[i] = t.domain(key, v)
		}
	}
	return out
}

// number assigns each key over which groups count a position in sites.
func (t *topology) number() {
	slots := map[string]int{}
	for _, g := range t.groups {
		if g.host {
			continue
		}
		slot, known := slots[g.key]
		if !known {
			slot = len(t.keys)
			slots[g.key] = slot
			t.keys = append(t.keys, g.key)
		}
		g.slot = slot
	}
}

// siteBought returns the site of a node bought as candidate b.
func (r *run) siteBought(b int) site {
	if r.binSites == nil {
		r.binSites = make([]site, len(r.catalog.candidates))
	}
	if r.binSites[b] == nil {
		r.binSites[b] = r.topo.site(func(key string) (string, bool) { return r.catalog.label(b, key) })
	}
	return r.binSites[b]
}

// siteIfPlaced returns the site that a node would have once a pod that depends on it is there.
func (r *run) siteIfPlaced(n *node) site {
	if n.planned() {
		return r.siteBought(n.candidate)
	}
	return r.nodeSites[n.index]
}

// ascertain sets the domains that a planned node certainly has by now.
func (r *run) ascertain(n *node) {
	n.sure = r.topo.site(func(key string) (string, bool) { return r.label(n, key) })
}

// domain returns the node's domain in a group, as far as it is certain.
func (r *run) domain(n *node, g *group) (int, bool) {
	switch {
	case g.host:
		return n.index, true
	case n.planned():
		return n.sure.of(g)
	}
	return r.nodeSites[n.index].of(g)
}
