package capacity

// compatibility asks of bins whether a planned node could be bought as them instead: from the same pool with the same
// labels wherever its pods depend on them, of the same capacity type and with the same daemons.
type compatibility struct {
	run  *run
	node *node
	// Keys of labels that must be the same, and their values: of offers, and of types as columns.
	keys    []string
	values  []string
	present []bool
	columns []*column
}

func (r *run) compatibility(n *node) *compatibility {
	l := &compatibility{run: r, node: n}
	x := &r.catalog.bins[n.bin]
	p := r.catalog.pools[x.pool]
	for _, key := range n.fixed {
		if OfferLabel(key) {
			v, ok := r.catalog.label(n.bin, key)
			l.keys, l.values, l.present = append(l.keys, key), append(l.values, v), append(l.present, ok)
		} else if _, own := p.labelChoices[x.labelChoice].labels[key]; !own {
			l.columns = append(l.columns, p.column(key))
		}
	}
	return l
}

// offer says whether a bin of the same pool is alike as far as its offer and its daemons go.
func (l *compatibility) offer(b int) bool {
	c := l.run.catalog
	x, y := &c.bins[l.node.bin], &c.bins[b]
	return x.offer.CapacityType == y.offer.CapacityType && x.offer.ReservationID == y.offer.ReservationID && l.labels(b)
}

// labels says whether a bin of the same pool, of whatever capacity type, has the labels of its offer that pods depend on, and the
// same daemons.
func (l *compatibility) labels(b int) bool {
	c := l.run.catalog
	if c.bins[l.node.bin].daemons != c.bins[b].daemons {
		return false
	}
	for i, key := range l.keys {
		if v, ok := c.label(b, key); v != l.values[i] || ok != l.present[i] {
			return false
		}
	}
	return true
}

// typ says whether a type of the same pool is alike.
func (l *compatibility) typ(typ int) bool {
	own := l.run.catalog.bins[l.node.bin].typ
	for _, col := range l.columns {
		if col.of[typ] != col.of[own] {
			return false
		}
	}
	return true
}

// content says whether all pods of the node may be on the bin.
func (l *compatibility) content(b int) bool {
	for _, s := range l.node.content {
		if !s.bins.Has(b) {
			return false
		}
	}
	return true
}

// is says whether the node could be bought as bin b.
func (l *compatibility) is(b int) bool {
	x, y := &l.run.catalog.bins[l.node.bin], &l.run.catalog.bins[b]
	return x.pool == y.pool && x.labelChoice == y.labelChoice && l.offer(b) && l.typ(y.typ) && l.content(b)
}
