package planner

import (
	"cmp"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// narrowing is a new node that may be in several zones and is to be in one of them, for the sake of even zones.
type narrowing struct {
	node *node
	// whole is the node's shape with offerings in all zones that its pods may be in.
	whole   *shape
	options []capacity.ZoneOption
}

// balance narrows new nodes that may be in several zones to one zone each, if their pool balances zones (Pool.ZoneBalance): the one with the fewest
// nodes of the pool among those that cost little more than the cheapest. Nodes whose pods, or whose offerings, leave only one zone are
// counted first. Then zones are chosen for the others, beginning with nodes that have the fewest to choose from. balance comes before the placements
// are put in order, so that what depends on the zone of these nodes is checked there.
func (r *run) balance() {
	counts := capacity.ZonesOf(r.view.Nodes, r.view.Pools)
	if counts == nil || r.lopsided {
		return
	}
	known := map[*shape]narrowing{}
	var all []narrowing
	for _, n := range r.nodes[r.existing:] {
		if n.gone || n.shape == nil || !n.shape.template.Pool.Balances() {
			continue
		}
		x, ok := known[n.shape]
		if !ok {
			x.whole = r.inAnyZone(n)
			x.options = r.zoneOptions(x.whole)
			known[n.shape] = x
		}
		if x.node = n; len(x.options) > 1 { // with one there is nothing to balance, and the dearer zones are of use if it has no capacity
			all = append(all, x)
		} else if zone, ok := n.shape.template.Labels[capacity.LabelZone]; ok {
			counts[n.shape.template.Pool.Name][zone]++
		}
	}
	slices.SortStableFunc(all, func(a, b narrowing) int { return cmp.Compare(len(a.options), len(b.options)) })
	type key struct {
		whole *shape
		zone  string
	}
	narrowed := map[key]*shape{}
	for _, x := range all {
		of := counts[x.node.shape.template.Pool.Name]
		at := key{x.whole, of.Emptiest(x.options)}
		s, ok := narrowed[at]
		if !ok {
			s = r.inZone(x.node, at.whole, at.zone)
			narrowed[at] = s
		}
		x.node.shape = s
		of[at.zone]++
	}
	r.narrowed = r.narrowed || len(all) > 0
}

// learnLopsided is for placements that were taken back after balance had chosen zones for nodes: with nodes in other zones they might be legal, and
// no pod shall wait for the sake of even zones. At first it only makes spread groups count the zones of the new nodes; if that doesn't help,
// the next attempts balance no zones. It returns false if there is nothing to change.
func (r *run) learnLopsided(attempt int) bool {
	if !r.tookBack || !r.narrowed {
		return false
	}
	if attempt < maxAttempts/2 && r.learnDomains() {
		return true
	}
	r.lopsided = true
	r.topo.ForgetDomains()
	return true
}

// inAnyZone returns the shape of a node with its offerings in all zones that its pods may be in, if only their own node selectors and node affinity
// have fixed the zone that it was planned in. Otherwise it returns the node's shape as it is.
func (r *run) inAnyZone(n *node) *shape {
	if _, certain := n.shape.template.Labels[capacity.LabelZone]; !certain || n.shape.template.MinValuesRelaxed {
		return n.shape
	}
	for _, s := range n.content {
		if s.level != s.podBatch.level || s.podBatch.keysOfOthers()[capacity.LabelZone] {
			return n.shape
		}
	}
	fixed := n.fixed
	n.fixed = slices.DeleteFunc(slices.Clone(fixed), func(key string) bool { return key == capacity.LabelZone })
	strict := r.catalog.Limited(r.catalog.Pools[r.catalog.Candidates[n.candidate].Pool]) || r.catalog.Covered(n.candidate)
	whole := r.shape(n, strict)
	n.fixed = fixed
	if whole.short != "" || len(whole.candidates) == 0 || whole.template.MinValuesRelaxed {
		return n.shape
	}
	return whole
}

// zoneOptions returns the zones to which nodes of this shape may be narrowed, in order of price.
func (r *run) zoneOptions(s *shape) (out []capacity.ZoneOption) {
	if s.template.CapacityType == capacity.CapacityTypeReserved || s.template.MinValuesRelaxed {
		return nil
	}
	c := r.catalog
	x := &c.Candidates[s.candidates[0]]
	pool := c.Pools[x.Pool]
	seen := map[string]bool{}
	for _, b := range s.candidates {
		y := &c.Candidates[b]
		if !pool.Tolerates(y.Price, x.Price) {
			break
		}
		zone := y.Offer.Zone
		if seen[zone] || zone == "" {
			continue
		}
		seen[zone] = true
		in := r.candidatesIn(s, zone)
		if s.template.CapacityType == capacity.CapacityTypeSpot && !capacity.SteadySpot(r.typesOf(in), r.typesOf(s.candidates)) {
			continue
		}
		if pool.Minimum {
			if _, short := c.Choose(pool, in); short != "" {
				continue
			}
		}
		out = append(out, capacity.ZoneOption{Zone: zone, Price: y.Price})
	}
	return out
}

// typesOf returns how many instance types the candidates have.
func (r *run) typesOf(candidates []int) int {
	types := map[*capacity.InstanceType]bool{}
	for _, b := range candidates {
		types[r.catalog.TypeOf(b)] = true
	}
	return len(types)
}

// candidatesIn returns the shape's candidates in a zone.
func (r *run) candidatesIn(s *shape, zone string) (out []int) {
	for _, b := range s.candidates {
		if r.catalog.Candidates[b].Offer.Zone == zone {
			out = append(out, b)
		}
	}
	return out
}

// inZone returns the shape of a node with those of whole's offerings that are in the zone. There must be some.
func (r *run) inZone(n *node, whole *shape, zone string) *shape {
	s := &shape{candidates: r.candidatesIn(whole, zone), whole: whole}
	r.describe(n, s)
	return s
}

// reshapeIn narrows the new shape of a node that has lost pods to the zone that balance had chosen for it, because other pods are placed as if it
// is there; false: it can't be.
func (r *run) reshapeIn(n *node, whole *shape) (*shape, bool) {
	if n.shape.whole == nil {
		return whole, true
	}
	zone := n.shape.template.Labels[capacity.LabelZone]
	in := r.candidatesIn(whole, zone)
	if len(in) == 0 {
		return nil, false
	}
	if pool := r.catalog.Pools[r.catalog.Candidates[in[0]].Pool]; pool.Minimum {
		if _, short := r.catalog.Choose(pool, in); short != "" {
			return nil, false
		}
	}
	return r.inZone(n, whole, zone), true
}
