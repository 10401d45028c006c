package capacity

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// shape is what nodes with the same content have in common: the offerings to choose from.
type shape struct {
	candidates []int // cheapest first
	// template is their PlannedNode, without the ID.
	template PlannedNode
	short    string
}

// shapes finds the offerings of each planned node. Nodes without any are dropped.
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
			s.podBatch.remove(n, s.n)
		}
		n.gone, r.tookBack = true, true
	}
}

// remove takes n pods off a node again.
func (u *podBatch) remove(from *node, n int) {
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

// shapesWithin finds the offerings. For the pools in strict it omits those that take more of a limit than the plan's own candidate.
func (r *run) shapesWithin(strict map[int]bool) {
	known := map[string]*shape{}
	var key []byte
	for _, n := range r.nodes[r.existing:] {
		n.short, n.shape = "", nil
		if n.gone {
			continue
		}
		key = binary.AppendUvarint(key[:0], uint64(n.candidate))
		for _, s := range n.content {
			key = binary.AppendUvarint(key, uint64(s.podBatch.index))
			key = binary.AppendUvarint(key, uint64(s.level))
			key = binary.AppendUvarint(key, uint64(s.n))
		}
		s, ok := known[string(key)]
		if !ok {
			s = r.shape(n, strict[r.catalog.candidates[n.candidate].pool])
			known[string(key)] = s
		}
		if len(s.candidates) == 0 {
			n.short = s.short
			continue
		}
		n.shape = s
	}
}

// overLimit returns the pools whose limits the nodes would exceed if each became its largest offering.
func (r *run) overLimit() map[int]bool {
	left := slices.Clone(r.allBudgets)
	over := map[int]bool{}
	for _, n := range r.nodes[r.existing:] {
		s := n.shape
		if s == nil {
			continue
		}
		pool := r.catalog.candidates[n.candidate].pool
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

// shape finds the offerings that hold a node's content: of the same pool, labels, capacity type and daemons, cheapest first. If there are
// none, short says why.
func (r *run) shape(n *node, strict bool) *shape {
	c := r.catalog
	x := &c.candidates[n.candidate]
	p := c.pools[x.pool]
	need := make([]int64, r.dims.len())
	for _, s := range n.content {
		for d := range need {
			need[d] = satAdd(need[d], satMul(s.podBatch.need[d], int64(s.n)))
		}
	}
	like := r.compatibility(n)
	var candidates []int
	enough := 0 // types found so far; each comes with its other zones
	for _, ways := range c.waysOf(p, x.labelChoice, x.offer) {
		if enough >= MaxFleetTypes && !p.minimum {
			break
		}
		if !like.typ(c.candidates[ways[0]].typ) || !p.minimum && c.special.Has(ways[0]) && !c.special.Has(n.candidate) {
			continue
		}
		fits, some := false, false
		for _, b := range ways {
			if !like.offer(b) {
				continue
			}
			// Candidates of a type with the same daemons have the same capacity.
			if !fits && packing.Fits(c.roomOf(b), need, 1) == 0 {
				break
			}
			if fits = true; like.admitsPods(b) && (!strict || r.takesNoMore(b, n.candidate)) {
				candidates, some = append(candidates, b), true
			}
		}
		if some {
			enough++
		}
	}
	ranks := p.labelChoices[x.labelChoice].ranks
	first := p.labelChoices[x.labelChoice].first
	slices.SortFunc(candidates, func(a, b int) int { return ranks[a-first] - ranks[b-first] })
	sensible := r.sensible(n, candidates, like, need)
	short := ""
	if p.minimum {
		if sensible, short = c.choose(p, sensible); short != "" {
			sensible, short = c.choose(p, candidates)
		}
		if short != "" && !r.opts.RelaxMinValues {
			return &shape{short: short}
		}
	}
	candidates = sensible
	s := &shape{candidates: candidates}
	if len(candidates) > 0 {
		r.describe(n, s)
		s.template.MinValuesRelaxed = short != ""
	}
	return s
}

// sensible returns the candidates, sorted by price, without special hardware unless the node is planned as such, and without spot
// offerings that are dearer than the same node on demand.
func (r *run) sensible(n *node, candidates []int, like *compatibility, need []int64) []int {
	c := r.catalog
	if !c.special.Has(n.candidate) {
		candidates = slices.DeleteFunc(slices.Clone(candidates), c.special.Has)
	}
	if len(candidates) == 0 || c.candidates[n.candidate].offer.CapacityType != capacityTypeSpot {
		return candidates
	}
	price, ok := r.onDemandPrice(n, like, need)
	if !ok || price < c.candidates[candidates[0]].price {
		return candidates
	}
	dear := slices.IndexFunc(candidates, func(b int) bool { return c.candidates[b].price > price })
	if dear < 0 {
		return candidates
	}
	return candidates[:dear:dear]
}

// takesNoMore reports whether candidate b takes no more of any limit than candidate a.
func (r *run) takesNoMore(b, a int) bool {
	for i, use := range r.catalog.uses(b) {
		if use.Amount > r.catalog.uses(a)[i].Amount {
			return false
		}
	}
	return true
}

// choose reduces candidates, sorted by price, to MaxFleetTypes types that satisfy the pool's minValues; short says which minValues can't
// be met.
func (c *catalog) choose(p *poolOffers, candidates []int) (chosen []int, short string) {
	types := map[int]bool{}
	for _, req := range p.Requirements.sorted() {
		if req.MinValues == 0 {
			continue
		}
		values := map[string]bool{}
		for _, b := range candidates {
			if v, ok := c.label(b, req.Key); ok && !values[v] && len(values) < req.MinValues {
				values[v] = true
				types[c.candidates[b].typ] = true
			}
		}
		if len(values) < req.MinValues && short == "" {
			short = fmt.Sprintf("minValues: only %d of %d values of %s are possible", len(values), req.MinValues, req.Key)
		}
	}
	for _, b := range candidates {
		if len(types) < MaxFleetTypes {
			types[c.candidates[b].typ] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(b int) bool { return !types[c.candidates[b].typ] }), short
}

// describe sets the shape's template, the PlannedNode for node n, from its candidates. What the candidates alone determine is computed
// once per set of candidates.
func (r *run) describe(n *node, s *shape) {
	key := make([]byte, 0, 3*len(s.candidates))
	for _, b := range s.candidates {
		key = binary.AppendUvarint(key, uint64(b))
	}
	t, known := r.described[string(key)]
	if !known {
		t = r.template(s.candidates)
		r.described[string(key)] = t
	}
	s.template = *t
	s.template.Requests = r.requestsOf(n, t.Daemons)
}

// template returns what the candidates determine about a planned node.
func (r *run) template(candidates []int) *PlannedNode {
	c := r.catalog
	x := &c.candidates[candidates[0]]
	p := c.pools[x.pool]
	t := &PlannedNode{}
	t.Pool, t.CapacityType, t.Price = p.Pool, x.offer.CapacityType, x.offer.Price
	t.Offers = make([]NodeOffer, 0, len(candidates))
	types := make([]int, 0, MaxFleetTypes)
	seen := make([]bool, len(p.types))
	for _, b := range candidates {
		t.Offers = append(t.Offers, NodeOffer{Type: c.typeOf(b), Offer: c.candidates[b].offer})
		if typ := c.candidates[b].typ; !seen[typ] {
			seen[typ] = true
			types = append(types, typ)
		}
	}
	all := p.common(types)
	t.Labels, t.Allocatable, t.Largest, t.VolumeLimits = maps.Clone(all.labels), all.allocatable, all.largest, all.volumes
	maps.Copy(t.Labels, p.labelChoices[x.labelChoice].labels)
	for _, key := range offerLabels {
		if v, ok := c.label(candidates[0], key); ok && !slices.ContainsFunc(candidates, func(b int) bool { w, _ := c.label(b, key); return w != v }) {
			t.Labels[key] = v
		}
	}
	t.Daemons = r.daemons.of[x.daemons]
	return t
}

// common is what instance types have in common. It is shared and must not be changed.
type common struct {
	labels               map[string]string
	allocatable, largest Resources
	volumes              map[string]int64
}

// maxCommon limits how many sets of types are cached.
const maxCommon = 2048

// common finds what the types at these positions have in common, or returns it from the cache.
func (p *poolOffers) common(types []int) *common {
	key := make([]byte, 0, 3*len(types))
	for _, t := range types {
		key = binary.AppendUvarint(key, uint64(t))
	}
	if out, known := p.commons[string(key)]; known {
		return out
	}
	first := p.types[types[0]]
	out := &common{labels: maps.Clone(first.Labels), allocatable: first.Allocatable.Clone(), largest: first.Capacity.Clone(), volumes: maps.Clone(first.VolumeLimits)}
	if out.labels == nil {
		out.labels = map[string]string{}
	}
	for _, at := range types[1:] {
		typ := p.types[at]
		out.allocatable.AtMost(typ.Allocatable)
		out.largest.AtLeast(typ.Capacity)
		for k, v := range out.labels {
			if w, ok := typ.Labels[k]; !ok || w != v {
				delete(out.labels, k)
			}
		}
		for driver, limit := range typ.VolumeLimits {
			if out.volumes == nil {
				out.volumes = map[string]int64{}
			}
			if have, ok := out.volumes[driver]; !ok || limit < have {
				out.volumes[driver] = limit
			}
		}
	}
	if p.commons == nil || len(p.commons) >= maxCommon {
		p.commons = map[string]*common{}
	}
	p.commons[string(key)] = out
	return out
}

// requests returns the sum of the requests of a planned node's pods and daemons.
func (r *run) requests(n *node) Resources { return r.requestsOf(n, n.shape.template.Daemons) }

func (r *run) requestsOf(n *node, daemons []*DaemonSet) Resources {
	out := Resources{}
	for _, s := range n.content {
		out.Add(s.podBatch.Requests, int64(s.n))
	}
	for _, d := range daemons {
		out.Add(d.Class.Requests, 1)
	}
	return out
}
