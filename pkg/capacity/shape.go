package capacity

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// shape is what nodes of equal content have in common: the offers to choose from.
type shape struct {
	bins []int // cheapest first
	// template holds what a PlannedNode says, but for its ID.
	template PlannedNode
	short    string
}

// shapes finds the offers of each planned node. Nodes without any are given up.
func (r *run) shapes() {
	r.shapesWithin(nil)
	if over := r.overLimit(); len(over) > 0 {
		r.shapesWithin(over)
	}
	for _, n := range r.nodes[r.existing:] {
		if n.gone || n.shape != nil {
			continue
		}
		for _, s := range n.content {
			s.unit.remove(n, s.n)
		}
		n.gone, r.tookBack = true, true
	}
}

// remove takes n pods off a node again.
func (u *unit) remove(from *node, n int) {
	u.left += n
	for i := range u.placed {
		if p := &u.placed[i]; p.node == from {
			take := min(n, p.n)
			p.n -= take
			n -= take
		}
	}
	u.placed = slices.DeleteFunc(u.placed, func(p placed) bool { return p.n == 0 })
}

// shapesWithin finds the offers; for the pools in strict none that takes more of a limit than what was planned with.
func (r *run) shapesWithin(strict map[int]bool) {
	known := map[string]*shape{}
	var key []byte
	for _, n := range r.nodes[r.existing:] {
		n.short, n.shape = "", nil
		if n.gone {
			continue
		}
		key = binary.AppendUvarint(key[:0], uint64(n.bin))
		for _, s := range n.content {
			key = binary.AppendUvarint(key, uint64(s.unit.index))
			key = binary.AppendUvarint(key, uint64(s.level))
			key = binary.AppendUvarint(key, uint64(s.n))
		}
		s, ok := known[string(key)]
		if !ok {
			s = r.shape(n, strict[r.catalog.bins[n.bin].pool])
			known[string(key)] = s
		}
		if len(s.bins) == 0 {
			n.short = s.short
			continue
		}
		n.shape = s
	}
}

// overLimit are the pools whose limits the nodes would pass if each became its largest offer.
func (r *run) overLimit() map[int]bool {
	left := slices.Clone(r.allBudgets)
	over := map[int]bool{}
	for _, n := range r.nodes[r.existing:] {
		s := n.shape
		if s == nil {
			continue
		}
		pool := r.catalog.bins[n.bin].pool
		for name, budget := range r.catalog.pools[pool].limits {
			amount := s.template.Largest[name]
			if name == ResourceNodes {
				amount = 1
			}
			if left[budget] = satAdd(left[budget], -amount); left[budget] < 0 {
				over[pool] = true
			}
		}
	}
	return over
}

// shape finds the offers that hold a node's content: of the same pool, labels, capacity type and daemons, cheapest first.
// Without bins, short says why there are none.
func (r *run) shape(n *node, strict bool) *shape {
	c := r.catalog
	x := &c.bins[n.bin]
	p := c.pools[x.pool]
	need := make([]int64, r.dims.len())
	for _, s := range n.content {
		for d := range need {
			need[d] = satAdd(need[d], satMul(s.unit.need[d], int64(s.n)))
		}
	}
	var bins []int
	types, enough := map[int]bool{}, 0 // a type that is in brings its other zones along
	for _, b := range c.byPrice(p, x.variant) {
		known := types[c.bins[b].typ]
		if enough >= MaxFleetTypes && !known && !p.minimum {
			continue
		}
		if packing.Fits(c.roomOf(b), need, 1) > 0 && r.couldBe(n, b) && (!strict || r.takesNoMore(b, n.bin)) {
			bins = append(bins, b)
			if !known {
				types[c.bins[b].typ] = true
				enough++
			}
		}
	}
	bins, short := c.choose(p, bins)
	if short != "" {
		return &shape{short: short}
	}
	s := &shape{bins: bins}
	r.describe(n, s)
	return s
}

// takesNoMore says whether bin b takes no more of any limit than bin a.
func (r *run) takesNoMore(b, a int) bool {
	for i, use := range r.catalog.uses(b) {
		if use.Amount > r.catalog.uses(a)[i].Amount {
			return false
		}
	}
	return true
}

// choose cuts bins, sorted by price, to MaxFleetTypes types such that the pool's minValues are kept.
func (c *catalog) choose(p *poolOffers, bins []int) (chosen []int, short string) {
	types := map[int]bool{}
	for _, req := range p.Requirements.sorted() {
		if req.MinValues == 0 {
			continue
		}
		values := map[string]bool{}
		for _, b := range bins {
			if v, ok := c.label(b, req.Key); ok && !values[v] && len(values) < req.MinValues {
				values[v] = true
				types[c.bins[b].typ] = true
			}
		}
		if len(values) < req.MinValues {
			return nil, fmt.Sprintf("minValues: only %d of %d values of %s are possible", len(values), req.MinValues, req.Key)
		}
	}
	for _, b := range bins {
		if len(types) < MaxFleetTypes {
			types[c.bins[b].typ] = true
		}
	}
	return slices.DeleteFunc(bins, func(b int) bool { return !types[c.bins[b].typ] }), ""
}

// describe fills the template from the shape's bins.
func (r *run) describe(n *node, s *shape) {
	c := r.catalog
	x := &c.bins[n.bin]
	p := c.pools[x.pool]
	t := &s.template
	t.Pool, t.CapacityType, t.Price = p.Pool, x.offer.CapacityType, c.bins[s.bins[0]].offer.Price
	t.Offers = make([]NodeOffer, 0, len(s.bins))
	types := make([]*InstanceType, 0, MaxFleetTypes)
	seen := make([]bool, len(p.types))
	for _, b := range s.bins {
		t.Offers = append(t.Offers, NodeOffer{Type: c.typeOf(b), Offer: c.bins[b].offer})
		if typ := c.bins[b].typ; !seen[typ] {
			seen[typ] = true
			types = append(types, p.types[typ])
		}
	}
	t.Labels = maps.Clone(types[0].Labels)
	if t.Labels == nil {
		t.Labels = map[string]string{}
	}
	t.Allocatable, t.Largest, t.VolumeLimits = types[0].Allocatable.Clone(), types[0].Capacity.Clone(), maps.Clone(types[0].VolumeLimits)
	for _, typ := range types[1:] {
		t.Allocatable.AtMost(typ.Allocatable)
		t.Largest.AtLeast(typ.Capacity)
		for k, v := range t.Labels {
			if w, ok := typ.Labels[k]; !ok || w != v {
				delete(t.Labels, k)
			}
		}
		for driver, limit := range typ.VolumeLimits {
			if t.VolumeLimits == nil {
				t.VolumeLimits = map[string]int64{}
			}
			if have, ok := t.VolumeLimits[driver]; !ok || limit < have {
				t.VolumeLimits[driver] = limit
			}
		}
	}
	maps.Copy(t.Labels, p.variants[x.variant].labels)
	for _, key := range offerLabels {
		if v, ok := c.label(s.bins[0], key); ok && !slices.ContainsFunc(s.bins, func(b int) bool { w, _ := c.label(b, key); return w != v }) {
			t.Labels[key] = v
		}
	}
	t.Daemons = r.daemons.of[x.daemons]
}

// requests is the sum of a planned node's pods and daemons.
func (r *run) requests(n *node) Resources {
	out := Resources{}
	for _, s := range n.content {
		out.Add(s.unit.Requests, int64(s.n))
	}
	for _, d := range n.shape.template.Daemons {
		out.Add(d.Class.Requests, 1)
	}
	return out
}
