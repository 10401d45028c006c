package topology

// Site holds the topology domain of a node, or of a node to be launched, for each key in Groups.keys; -1 if the node lacks the label.
type Site []int

// Of returns the site's domain for the topology key of a group over a label; ok is false if the node lacks that label.
func (s Site) Of(g *Group) (domain int, ok bool) {
	d := s[g.slot]
	return d, d >= 0
}

// Site returns the topology domains of a node for which label returns the labels.
func (t *Groups) Site(label func(key string) (string, bool)) Site {
	out := make(Site, len(t.keys))
	for i, key := range t.keys {
		out[i] = -1
		if v, ok := label(key); ok {
			out[i] = t.domain(key, v)
		}
	}
	return out
}

// number assigns each topology key of the groups, except the host name, a position in a Site.
func (t *Groups) number() {
	slots := map[string]int{}
	for _, g := range t.Groups {
		if g.Host {
			continue
		}
		slot, known := slots[g.Key]
		if !known {
			slot = len(t.keys)
			slots[g.Key] = slot
			t.keys = append(t.keys, g.Key)
		}
		g.slot = slot
	}
}
