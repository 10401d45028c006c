package planner

import (
	"encoding/binary"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// shape is what nodes with the same content have in common: the offerings to choose from.
type shape struct {
	candidates []int // cheapest first
	// template is the PlannedNode of each of these nodes, without the ID.
	template capacity.PlannedNode
	short    string // why there are no candidates: which of the pool's minValues can't be met
	// whole is the shape with offerings in all zones, if this one has been narrowed to a zone for the sake of even zones; nil: it hasn't.
	whole *shape
}

// shapes finds the offerings of each planned node. Nodes without any are dropped.
func (r *run) shapes() {
	over := overrun{pools: map[int]bool{}, commitments: map[int]bool{}}
	for more := true; more; more = r.overLimit(&over) { // at most once for each pool and commitment
		r.shapesWithin(&over)
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

// overrun are the pools, by index, whose limits the new nodes would exceed if each became the largest of its offerings; and likewise the
// commitments, by the index of their budget, of which not enough is left.
type overrun struct{ pools, commitments map[int]bool }

// of reports whether a node bought as candidate b counts against one of them.
func (o *overrun) of(c *catalog.Catalog, b int) bool {
	use, ok := c.CommitmentUse(b)
	return o.pools[c.Candidates[b].Pool] || ok && o.commitments[use.Budget]
}

// shapesWithin finds the offerings of each planned node. A node of a pool or commitment in strict gets no offering that takes more of a limit or
// commitment than the candidate it was packed as. If the offerings that a commitment pays for can't meet the pool's minValues, the node is bought
// without the commitment.
func (r *run) shapesWithin(strict *overrun) {
	known := map[string]*shape{}
	var key []byte
	for _, n := range r.nodes[r.existing:] {
		n.short, n.shape = "", nil
		if n.gone {
			continue
		}
		find := func() *shape {
			key = binary.AppendUvarint(key[:0], uint64(n.candidate))
			for _, s := range n.content {
				key = binary.AppendUvarint(key, uint64(s.podBatch.index))
				key = binary.AppendUvarint(key, uint64(s.level))
				key = binary.AppendUvarint(key, uint64(s.n))
			}
			s, ok := known[string(key)]
			if !ok {
				s = r.shape(n, strict.of(r.catalog, n.candidate))
				known[string(key)] = s
			}
			return s
		}
		s := find()
		if len(s.candidates) == 0 && r.catalog.Covered(n.candidate) {
			r.enlarge(n, r.catalog.Plain(n.candidate))
			s = find()
		}
		if len(s.candidates) == 0 {
			n.short = s.short
			continue
		}
		n.shape = s
	}
}

// overLimit adds to over the pools and commitments that the nodes would exceed (overrun); for a limit that all pools share it adds all pools. It
// reports whether it has added any.
func (r *run) overLimit(over *overrun) (more bool) {
	left := slices.Clone(r.allBudgets)
	take := func(budget int, amount int64, among map[int]bool, at ...int) {
		if left[budget] = capacity.SatAdd(left[budget], -amount); left[budget] >= 0 {
			return
		}
		for _, i := range at {
			if !among[i] {
				among[i], more = true, true
			}
		}
	}
	all := make([]int, len(r.catalog.Pools))
	for i := range all {
		all[i] = i
	}
	for _, n := range r.nodes[r.existing:] {
		s := n.shape
		if s == nil {
			continue
		}
		pool := r.catalog.Candidates[n.candidate].Pool
		amount := func(name corev1.ResourceName) int64 {
			if name == capacity.ResourceNodes {
				return 1
			}
			return s.template.Largest[name]
		}
		for name, budget := range r.catalog.Pools[pool].LimitBudgets {
			take(budget, amount(name), over.pools, pool)
		}
		for name, budget := range r.catalog.Budgets.OfAll {
			take(budget, amount(name), over.pools, all...)
		}
		if use, ok := r.catalog.CommitmentUse(n.candidate); ok {
			take(use.Budget, s.template.Covered.Use, over.commitments, use.Budget)
		}
	}
	return more
}

// shape finds the offerings that hold a node's content: of the same pool, labels, capacity type and daemons, cheapest first. If there are
// none, short says why.
func (r *run) shape(n *node, strict bool) *shape {
	c := r.catalog
	x := &c.Candidates[n.candidate]
	p := c.Pools[x.Pool]
	need := make([]int64, r.dims.Len())
	for _, s := range n.content {
		for d := range need {
			need[d] = capacity.SatAdd(need[d], capacity.SatMul(s.podBatch.need[d], int64(s.n)))
		}
	}
	like := c.Compatibility(n.candidate, n.fixed)
	var candidates []int
	enough := 0 // the number of types found so far; all zones of a type are found together
	for _, ways := range c.WaysOf(n.candidate) {
		if enough >= capacity.MaxFleetTypes && !p.Minimum {
			break
		}
		if !like.InstanceType(ways[0]) || !p.Minimum && c.Special.Has(ways[0]) && !c.Special.Has(n.candidate) {
			continue
		}
		fits, some := false, false
		for _, b := range ways {
			if !like.Offer(b) {
				continue
			}
			// Candidates of a type with the same daemons have the same capacity.
			if !fits && packing.Fits(c.RoomOf(b), need, 1) == 0 {
				break
			}
			if fits = true; n.admitsPods(b) && (!strict || r.takesNoMore(b, n.candidate)) {
				candidates, some = append(candidates, b), true
			}
		}
		if some {
			enough++
		}
	}
	ranks := p.LabelChoices[x.LabelChoice].Ranks
	first := p.LabelChoices[x.LabelChoice].First
	slices.SortFunc(candidates, func(a, b int) int { return ranks[a-first] - ranks[b-first] })
	sensible := r.sensible(n, candidates, like, need)
	short := ""
	if p.Minimum {
		if sensible, short = c.Choose(p, sensible); short != "" {
			sensible, short = c.Choose(p, candidates)
		}
		if short != "" && (!r.opts.RelaxMinValues || c.Covered(n.candidate)) {
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
func (r *run) sensible(n *node, candidates []int, like *catalog.Compatibility, need []int64) []int {
	c := r.catalog
	if !c.Special.Has(n.candidate) {
		candidates = slices.DeleteFunc(slices.Clone(candidates), c.Special.Has)
	}
	if len(candidates) == 0 || c.Candidates[n.candidate].Offer.CapacityType != capacity.CapacityTypeSpot {
		return candidates
	}
	price, ok := r.onDemandPrice(n, like, need)
	if !ok || price < c.Candidates[candidates[0]].Price {
		return candidates
	}
	dear := slices.IndexFunc(candidates, func(b int) bool { return c.Candidates[b].Price > price })
	if dear < 0 {
		return candidates
	}
	return candidates[:dear:dear]
}

// takesNoMore reports whether candidate b takes no more of any limit than candidate a, nor of the commitment that pays for both.
func (r *run) takesNoMore(b, a int) bool {
	for i, use := range r.catalog.Uses(b) {
		if use.Amount > r.catalog.Uses(a)[i].Amount {
			return false
		}
	}
	return true
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
		t = r.catalog.Template(s.candidates, r.daemons)
		r.described[string(key)] = t
	}
	s.template = *t
	s.template.Requests = r.requestsOf(n, t.Daemons)
}

// requests returns the sum of the requests of a planned node's pods and daemons.
func (r *run) requests(n *node) capacity.Resources { return r.requestsOf(n, n.shape.template.Daemons) }

func (r *run) requestsOf(n *node, daemons []*capacity.DaemonSet) capacity.Resources {
	out := capacity.Resources{}
	for _, s := range n.content {
		out.Add(s.podBatch.Requests, int64(s.n))
	}
	for _, d := range daemons {
		out.Add(d.Class.Requests, 1)
	}
	return out
}
