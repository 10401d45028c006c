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
	// template is their PlannedNode, without the ID.
	template capacity.PlannedNode
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

// shapesWithin finds the offerings. In the pools in strict it omits offerings that take more of a limit than the node's own candidate.
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
			s = r.shape(n, strict[r.catalog.Candidates[n.candidate].Pool])
			known[string(key)] = s
		}
		if len(s.candidates) == 0 {
			n.short = s.short
			continue
		}
		n.shape = s
	}
}

// overLimit returns the pools whose limits the nodes would exceed if each became its largest offering; all of them if that would exceed a limit
// of all pools.
func (r *run) overLimit() map[int]bool {
	left := slices.Clone(r.allBudgets)
	over := map[int]bool{}
	all := false
	for _, n := range r.nodes[r.existing:] {
		s := n.shape
		if s == nil {
			continue
		}
		pool := r.catalog.Candidates[n.candidate].Pool
		exceeds := func(budgets map[corev1.ResourceName]int) (yes bool) {
			for name, budget := range budgets {
				amount := s.template.Largest[name]
				if name == capacity.ResourceNodes {
					amount = 1
				}
				left[budget] = capacity.SatAdd(left[budget], -amount)
				yes = yes || left[budget] < 0
			}
			return yes
		}
		if exceeds(r.catalog.Pools[pool].LimitBudgets) {
			over[pool] = true
		}
		all = exceeds(r.catalog.TotalBudgets) || all
	}
	for pool := range r.catalog.Pools {
		if all {
			over[pool] = true
		}
	}
	return over
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
	for _, ways := range c.WaysOf(p, x.LabelChoice, x.Offer) {
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

// takesNoMore reports whether candidate b takes no more of any limit than candidate a.
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
