package capacity

// compatibility tells as which other candidates a planned node could be bought: those from the same pool and of the same capacity type,
// with the same daemons, and with the same values of all labels that the node's pods depend on.
type compatibility struct {
	run  *run
	node *node
	// The labels that must be the same: keys, values and presence of the offering's labels, and columns of the types' labels.
	keys    []string
	values  []string
	present []bool
	columns []*column
}

func (r *run) compatibility(n *node) *compatibility {
	l := &compatibility{run: r, node: n}
	x := &r.catalog.candidates[n.candidate]
	p := r.catalog.pools[x.pool]
	for _, key := range n.fixed {
		if OfferLabel(key) {
			v, ok := r.catalog.label(n.candidate, key)
			l.keys, l.values, l.present = append(l.keys, key), append(l.values, v), append(l.present, ok)
		} else if _, own := p.labelChoices[x.labelChoice].labels[key]; !own {
			l.columns = append(l.columns, p.column(key))
		}
	}
	return l
}

// offer reports whether the offering and the daemons of a candidate of the same pool are compatible.
func (l *compatibility) offer(b int) bool {
	c := l.run.catalog
	x, y := &c.candidates[l.node.candidate], &c.candidates[b]
	return x.offer.CapacityType == y.offer.CapacityType && x.offer.ReservationID == y.offer.ReservationID && l.labels(b)
}

// labels reports whether a candidate of the same pool, of any capacity type, has the same daemons and the same values of the offering's
// labels that pods depend on.
func (l *compatibility) labels(b int) bool {
	c := l.run.catalog
	if c.candidates[l.node.candidate].daemons != c.candidates[b].daemons {
		return false
	}
	for i, key := range l.keys {
		if v, ok := c.label(b, key); v != l.values[i] || ok != l.present[i] {
			return false
		}
	}
	return true
}

// typ reports whether a type of the same pool is compatible.
func (l *compatibility) typ(typ int) bool {
	own := l.run.catalog.candidates[l.node.candidate].typ
	for _, col := range l.columns {
		if col.of[typ] != col.of[own] {
			return false
		}
	}
	return true
}

// admitsPods reports whether all pods of the node may be on the candidate.
func (l *compatibility) admitsPods(b int) bool {
	for _, s := range l.node.content {
		if !s.candidates.Has(b) {
			return false
		}
	}
	return true
}

// is reports whether the node could be bought as candidate b.
func (l *compatibility) is(b int) bool {
	x, y := &l.run.catalog.candidates[l.node.candidate], &l.run.catalog.candidates[b]
	return x.pool == y.pool && x.labelChoice == y.labelChoice && l.offer(b) && l.typ(y.typ) && l.admitsPods(b)
}
