package planner

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// compatibility tells as which other candidates a node that is planned as a candidate could be bought: those from the same pool and of the
// same capacity type, with the same daemons, and with the same values of all labels that the node's pods depend on.
type compatibility struct {
	catalog   *catalog
	candidate int
	// The labels that must be the same: keys, values and presence of the offering's labels, and columns of the types' labels.
	keys    []string
	values  []string
	present []bool
	columns []*column
}

// compatibility returns it for a node that is planned as candidate b, and whose pods depend on the labels fixed.
func (c *catalog) compatibility(b int, fixed []string) *compatibility {
	l := &compatibility{catalog: c, candidate: b}
	x := &c.candidates[b]
	p := c.pools[x.pool]
	for _, key := range fixed {
		if capacity.OfferLabel(key) {
			v, ok := c.label(b, key)
			l.keys, l.values, l.present = append(l.keys, key), append(l.values, v), append(l.present, ok)
		} else if _, own := p.labelChoices[x.labelChoice].labels[key]; !own {
			l.columns = append(l.columns, p.column(key))
		}
	}
	return l
}

// offer reports whether the offering and the daemons of a candidate of the same pool are compatible.
func (l *compatibility) offer(b int) bool {
	x, y := &l.catalog.candidates[l.candidate], &l.catalog.candidates[b]
	return x.offer.CapacityType == y.offer.CapacityType && x.offer.ReservationID == y.offer.ReservationID && l.labels(b)
}

// labels reports whether a candidate of the same pool, of any capacity type, has the same daemons and the same values of the offering's
// labels that pods depend on.
func (l *compatibility) labels(b int) bool {
	c := l.catalog
	if c.candidates[l.candidate].daemons != c.candidates[b].daemons {
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
	own := l.catalog.candidates[l.candidate].typ
	for _, col := range l.columns {
		if col.of[typ] != col.of[own] {
			return false
		}
	}
	return true
}

// is reports whether the node could be bought as candidate b, as far as its pods don't rule that out themselves.
func (l *compatibility) is(b int) bool {
	x, y := &l.catalog.candidates[l.candidate], &l.catalog.candidates[b]
	return x.pool == y.pool && x.labelChoice == y.labelChoice && l.offer(b) && l.typ(y.typ)
}
