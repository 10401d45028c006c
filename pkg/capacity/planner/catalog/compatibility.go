package catalog

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Compatibility tells as which other candidates a node could be bought that is planned as one candidate. They must have the same pool, capacity
// type, capacity reservation and commitment (or none), the same daemons, and the same values of all labels that the node's pods depend on.
type Compatibility struct {
	catalog   *Catalog
	candidate int
	// The labels that must be the same. Of the offering's labels: keys, values, and whether the node has them. Of the types' labels: columns.
	keys    []string
	values  []string
	present []bool
	columns []*column
}

// Compatibility returns the Compatibility of a node that is planned as candidate b, and whose pods depend on the labels with the keys fixed.
func (c *Catalog) Compatibility(b int, fixed []string) *Compatibility {
	l := &Compatibility{catalog: c, candidate: b}
	x := &c.Candidates[b]
	p := c.Pools[x.Pool]
	for _, key := range fixed {
		if capacity.OfferLabel(key) {
			v, ok := c.Label(b, key)
			l.keys, l.values, l.present = append(l.keys, key), append(l.values, v), append(l.present, ok)
		} else if _, own := p.LabelChoices[x.LabelChoice].Labels[key]; !own {
			l.columns = append(l.columns, p.column(key))
		}
	}
	return l
}

// Offer reports whether the offering and the daemons of a candidate of the same pool are compatible.
func (l *Compatibility) Offer(b int) bool {
	return l.catalog.wayOf(l.candidate) == l.catalog.wayOf(b) && l.Labels(b)
}

// Labels reports whether a candidate of the same pool, of any capacity type, has the same daemons and the same values of the offering's
// labels that pods depend on.
func (l *Compatibility) Labels(b int) bool {
	c := l.catalog
	if c.Candidates[l.candidate].daemons != c.Candidates[b].daemons {
		return false
	}
	for i, key := range l.keys {
		if v, ok := c.Label(b, key); v != l.values[i] || ok != l.present[i] {
			return false
		}
	}
	return true
}

// InstanceType reports whether the type of a candidate of the same pool is compatible.
func (l *Compatibility) InstanceType(b int) bool {
	own, typ := l.catalog.Candidates[l.candidate].typ, l.catalog.Candidates[b].typ
	for _, col := range l.columns {
		if col.of[typ] != col.of[own] {
			return false
		}
	}
	return true
}

// Is reports whether the node could be bought as candidate b, as far as its pods don't rule that out themselves.
func (l *Compatibility) Is(b int) bool {
	x, y := &l.catalog.Candidates[l.candidate], &l.catalog.Candidates[b]
	return x.Pool == y.Pool && x.LabelChoice == y.LabelChoice && l.Offer(b) && l.InstanceType(b)
}
