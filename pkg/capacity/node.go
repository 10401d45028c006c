package capacity

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// node is an existing or planned node while planning.
type node struct {
	index int // the domain of host groups
	view  *Node
	// bin is what a planned node is bought as, for now; -1: an existing node.
	bin     int
	content []share
	free    []int64
	// sure is where a planned node is for certain.
	sure site
	// fixed are the labels whose value must be the same whatever is launched.
	fixed []string
	// present are the groups that know of the node already.
	present map[*group]bool
	gone    bool
	// lost: pods were taken off it since its shape was found.
	lost bool
	// shape is what it may be bought as, once all is decided.
	shape *shape
	// short is why no set of offers satisfies the pool's minValues with this content.
	short string
}

// share is pods of one unit, placed at one level of its preferences.
type share struct {
	unit  *unit
	level int
	bins  packing.Bits // the unit's at that level
	n     int
}

func (n *node) planned() bool { return n.view == nil }

// label is a label of the node. For a planned one only those that are certain: while deciding those that are fixed, in
// the end those that all its offers have in common.
func (r *run) label(n *node, key string) (string, bool) {
	switch {
	case !n.planned():
		return n.view.label(key)
	case n.shape != nil:
		v, ok := n.shape.template.Labels[key]
		return v, ok
	case slices.Contains(n.fixed, key) || key == labelCapacityType:
		return r.catalog.label(n.bin, key)
	}
	b := &r.catalog.bins[n.bin]
	v, ok := r.catalog.pools[b.pool].labelChoices[b.labelChoice].labels[key]
	return v, ok
}

// counts says whether a spread group looks at the node.
func (r *run) counts(g *group, n *node) bool {
	if !n.planned() {
		return r.topo.eligible[g].Has(n.index)
	}
	return r.countsBin(g, n.bin, func(key string) (string, bool) { return r.label(n, key) })
}

// countsBin says whether a spread group will look at a node bought as bin b with these labels.
func (r *run) countsBin(g *group, b int, label func(key string) (string, bool)) bool {
	p := r.catalog.pools[r.catalog.bins[b].pool]
	a := asks{terms: g.filter.terms, tolerations: g.filter.tolerations, preferred: true}
	for _, key := range g.filter.keys {
		if _, ok := label(key); !ok && key != labelHostname {
			return false
		}
	}
	if g.filter.taints && a.tolerates(p.Taints) != nil {
		return false
	}
	return a.matches(label)
}

// place puts k pods of a unit on a node.
func (r *run) place(u *unit, n *node, k int) {
	packing.Take(n.free, u.need, k)
	at := -1
	for i := range n.content {
		if n.content[i].unit == u && n.content[i].level == u.level {
			at = i
		}
	}
	if at < 0 {
		n.content = append(n.content, share{unit: u, level: u.level, bins: u.bins})
		at = len(n.content) - 1
		if n.planned() {
			more := false
			for _, key := range r.keysNow(u) {
				if !slices.Contains(n.fixed, key) {
					n.fixed, more = append(n.fixed, key), true
				}
			}
			if more {
				r.ascertain(n)
				r.register(n)
			}
		}
	}
	n.content[at].n += k
	if last := len(u.placed) - 1; last >= 0 && u.placed[last].node == n {
		u.placed[last].n += k
	} else {
		u.placed = append(u.placed, placed{n, k})
	}
	u.left -= k
	r.tally(u, n, k)
}

// tally counts k pods of a unit on a node in the groups that it is a member or an owner of.
func (r *run) tally(u *unit, n *node, k int) {
	for _, g := range u.member {
		if g.filter != nil && !r.counts(g, n) {
			continue
		}
		if d, ok := r.domain(n, g); ok {
			g.add(d, k)
		}
	}
	for i := range u.all {
		if o := &u.all[i]; o.kind == antiAffinity && o.hard() {
			if d, ok := r.domain(n, o.group); ok {
				o.group.owners[d] += k
			}
		}
	}
}

// register makes the node a domain of the spread groups over labels that will count it, and counts its daemons' pods.
func (r *run) register(n *node) {
	for _, g := range r.topo.opening {
		if n.present[g] {
			continue
		}
		d, ok := r.domain(n, g)
		if !ok {
			continue
		}
		if g.filter != nil && !r.counts(g, n) {
			continue // as far as its labels are certain by now
		}
		if n.present == nil {
			n.present = map[*group]bool{}
		}
		n.present[g] = true
		if k := r.daemons.among(g.repelling, n.bin); k > 0 {
			g.owners[d] += k
		}
		if g.filter != nil && !g.host {
			g.nodes[d]++
		}
		if k := r.daemons.among(g.daemons, n.bin); k > 0 {
			g.add(d, k)
		}
	}
}

// open adds a planned node bought as bin b.
func (r *run) open(b int) *node {
	n := &node{index: len(r.nodes), bin: b}
	n.free = append(n.free, r.catalog.roomOf(b)...)
	r.nodes = append(r.nodes, n)
	for _, use := range r.catalog.uses(b) {
		r.budgets[use.Budget] -= use.Amount
	}
	r.ascertain(n)
	r.register(n)
	return n
}
