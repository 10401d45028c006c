package planner

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
