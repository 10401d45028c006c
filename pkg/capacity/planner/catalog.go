package planner

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// catalog is everything that could be bought: an offering candidate (candidate) for each pool, choice of labels, instance type and available
// offering.
type catalog struct {
	pools      []*poolOffers
	candidates []candidate
	dims       *dims
	// tiers are the candidates by weight of their pools, highest first.
	tiers []packing.Bits
	// budgets is the number of limits and capacity reservations. reserved is how many instances are left in capacity reservations, by
	// budget.
	budgets  int
	reserved map[int]int
	// special are the candidates of special hardware.
	special packing.Bits
	// matched are the candidates that satisfy a pod's demands on nodes, by asks.id.
	matched map[string]packing.Bits
	// rooms are the candidates' capacities per dimension, shared by candidates with the same type and daemons. They are valid for one
	// plan.
	rooms [][]int64
}

// poolOffers is a pool with the instance types that its requirements allow.
type poolOffers struct {
	*capacity.Pool
	index int
	// tier is the same for pools of equal weight, which compete on price.
	tier         int
	types        []*capacity.InstanceType
	columns      map[string]*column
	commons      map[string]*common
	labelChoices []labelChoice
	// limits are the budgets of the pool's limits, by resource.
	limits map[corev1.ResourceName]int
	// narrowed is how many types the requirements exclude.
	narrowed int
	// minimum: a requirement has minValues.
	minimum bool
}

// labelChoice is one choice of values for the labels that the pool leaves open.
type labelChoice struct {
	labels      map[string]string
	first, last int // its candidates
	ways        map[way][][]int
	ranks       []int // its candidates' positions in order of price
}

// candidate is an offering candidate: a node that can be bought.
type candidate struct {
	pool, labelChoice, typ int
	offer                  capacity.Offer
	price                  float64 // the price that is compared
	room                   int     // index into rooms
	daemons                string  // the daemons that run on it, as a key
	uses                   []packing.Use
}

// column holds one label's values over the types of a pool.
type column struct {
	values []string
	of     []int // index into values, by type; -1: the label is absent
}

func (c *catalog) typeOf(b int) *capacity.InstanceType {
	return c.pools[c.candidates[b].pool].types[c.candidates[b].typ]
}

func (c *catalog) roomOf(b int) []int64 { return c.rooms[c.candidates[b].room] }

// label returns a label that a node bought as candidate b will have.
func (c *catalog) label(b int, key string) (string, bool) {
	x := &c.candidates[b]
	if v, ok := x.offer.Label(key); ok {
		return v, true
	}
	p := c.pools[x.pool]
	if v, ok := p.labelChoices[x.labelChoice].labels[key]; ok {
		return v, true
	}
	v, ok := p.types[x.typ].Labels[key]
	return v, ok
}

// newCatalog lists what can be bought. mentioned are the label keys that the demand asks for, with the values it names.
func newCatalog(pools []*capacity.Pool, opts *capacity.Options, mentioned map[string]map[string]bool) *catalog {
	c := &catalog{matched: map[string]packing.Bits{}}
	size := 0
	for _, p := range pools {
		for _, t := range p.Types {
			size += len(t.Offers)
		}
	}
	c.candidates = make([]candidate, 0, size)
	tier := -1
	for i, p := range pools {
		if i == 0 || p.Weight != pools[i-1].Weight {
			tier++
		}
		po := &poolOffers{Pool: p, index: i, tier: tier, columns: map[string]*column{}, limits: map[corev1.ResourceName]int{}}
		c.pools = append(c.pools, po)
		if p.Unready != "" || p.Replicas != nil {
			continue
		}
		po.narrow()
		for _, r := range p.Requirements {
			po.minimum = po.minimum || r.MinValues > 0
		}
		for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
			po.limits[name] = c.budgets
			c.budgets++
		}
		po.labelChoices = po.openLabels(mentioned)
		for v := range po.labelChoices {
			po.labelChoices[v].first = len(c.candidates)
			c.addCandidates(po, v, opts)
			po.labelChoices[v].last = len(c.candidates)
		}
	}
	c.addUses()
	c.setSpecial()
	for b := range c.candidates {
		tier := c.pools[c.candidates[b].pool].tier
		for len(c.tiers) <= tier {
			c.tiers = append(c.tiers, packing.NewBits(len(c.candidates)))
		}
		c.tiers[tier].Set(b)
	}
	return c
}

// left returns what is left of the budgets, that is of limits and capacity reservations.
func (c *catalog) left() []int64 {
	out := make([]int64, c.budgets)
	for _, p := range c.pools {
		for name, budget := range p.limits {
			out[budget] = capacity.SatAdd(p.Limits[name], capacity.SatMul(p.Used[name], -1))
		}
	}
	for budget, n := range c.reserved {
		out[budget] = int64(n)
	}
	return out
}

func (c *catalog) addCandidates(p *poolOffers, v int, opts *capacity.Options) {
	zones, hasZones := p.Requirements[capacity.LabelZone]
	cts, hasCTs := p.Requirements[capacity.LabelCapacityType]
	var others []capacity.Requirement // on labels of offers
	for _, key := range capacity.OfferLabels {
		if r, ok := p.Requirements[key]; ok && key != capacity.LabelZone && key != capacity.LabelCapacityType {
			others = append(others, r)
		}
	}
	surcharge := 0.0
	if s := opts.NodeSurcharge; s > 0 && !math.IsInf(s, 1) {
		surcharge = s
	}
	for t, typ := range p.types {
		factor := 1.0
		if len(opts.PriceFactor) > 0 {
			family, _, _ := strings.Cut(typ.Name, ".")
			if f := opts.PriceFactor[family]; f > 0 && !math.IsInf(f, 1) {
				factor = f
			}
		}
		for _, o := range typ.Offers {
			if !o.Available || !(o.Price >= 0) || math.IsInf(o.Price, 1) || hasZones && !zones.Has(o.Zone) || hasCTs && !cts.Has(o.CapacityType) ||
				o.CapacityType == capacity.CapacityTypeReserved && o.Remaining <= 0 ||
				slices.ContainsFunc(others, func(r capacity.Requirement) bool { return !o.Allows(r) }) {
				continue
			}
			c.candidates = append(c.candidates, candidate{pool: p.index, labelChoice: v, typ: t, offer: o, price: o.Price*factor + surcharge})
		}
	}
}

// addUses sets what each candidate takes from its pool's limits and from its capacity reservation.
func (c *catalog) addUses() {
	c.reserved = map[int]int{}
	reservations := map[string]int{}
	var uses []packing.Use
	for b := range c.candidates {
		x := &c.candidates[b]
		p, typ := c.pools[x.pool], c.typeOf(b)
		if b == 0 || c.candidates[b-1].pool != x.pool || c.typeOf(b-1) != typ {
			uses = nil
			for _, name := range slices.Sorted(maps.Keys(p.limits)) {
				amount := typ.Capacity[name]
				if name == capacity.ResourceNodes {
					amount = 1
				}
				uses = append(uses, packing.Use{Budget: p.limits[name], Amount: amount})
			}
		}
		x.uses = uses
		if x.offer.CapacityType == capacity.CapacityTypeReserved {
			at, known := reservations[x.offer.ReservationID]
			if !known {
				at = c.budgets
				c.budgets++
				reservations[x.offer.ReservationID], c.reserved[at] = at, x.offer.Remaining
			}
			x.uses = append(slices.Clip(uses), packing.Use{Budget: at, Amount: 1})
		}
	}
}

// reservation returns the budget of the capacity reservation that candidate b takes from.
func (c *catalog) reservation(b int) (budget int, ok bool) {
	for _, use := range c.candidates[b].uses {
		if _, ok := c.reserved[use.Budget]; ok {
			return use.Budget, true
		}
	}
	return 0, false
}

func (c *catalog) uses(b int) []packing.Use { return c.candidates[b].uses }

// narrow keeps the types that satisfy the pool's requirements on labels of instance types.
func (p *poolOffers) narrow() {
	var of []capacity.Requirement
	for _, r := range p.Requirements.Sorted() {
		if p.typeLabel(r.Key) { // also the pool's own labels: a type that contradicts them can't be bought here
			of = append(of, r)
		}
	}
next:
	for _, t := range p.Types {
		for _, r := range of {
			if v, ok := t.Labels[r.Key]; ok && !r.Has(v) || !ok && !r.AllowsAbsent() {
				p.narrowed++
				continue next
			}
		}
		p.types = append(p.types, t)
	}
}

// typeLabel reports whether instance types set the label, rather than the pool.
func (p *poolOffers) typeLabel(key string) bool {
	switch key {
	case capacity.LabelHostname:
		return false
	case corev1.LabelArchStable, corev1.LabelOSStable, corev1.LabelWindowsBuild, corev1.LabelInstanceTypeStable, corev1.LabelTopologyRegion:
		return true
	}
	if capacity.OfferLabel(key) {
		return false
	}
	if strings.HasPrefix(key, "karpenter.k8s.aws/instance-") {
		return true
	}
	for _, t := range p.Types {
		if _, ok := t.Labels[key]; ok {
			return true
		}
	}
	return false
}

func (p *poolOffers) column(key string) *column {
	if col, ok := p.columns[key]; ok {
		return col
	}
	col := &column{of: make([]int, len(p.types))}
	index := map[string]int{}
	for t, typ := range p.types {
		v, ok := typ.Labels[key]
		if !ok {
			col.of[t] = -1
			continue
		}
		i, seen := index[v]
		if !seen {
			i = len(col.values)
			index[v] = i
			col.values = append(col.values, v)
		}
		col.of[t] = i
	}
	p.columns[key] = col
	return col
}

// way is what candidates of a type must have in common to be alternatives for one node, besides pool and choice of labels: the capacity
// type and the capacity reservation.
type way struct{ capacityType, reservation string }

// waysOf returns the candidates with a pool's choice of labels that are bought in the same way as the offering: by type, the cheapest
// first.
func (c *catalog) waysOf(p *poolOffers, v int, o capacity.Offer) [][]int {
	x := &p.labelChoices[v]
	if x.ways == nil {
		x.ways, x.ranks = map[way][][]int{}, make([]int, x.last-x.first)
		sorted := make([]int, 0, x.last-x.first)
		for b := x.first; b < x.last; b++ {
			sorted = append(sorted, b)
		}
		slices.SortFunc(sorted, c.cheaper)
		for rank, b := range sorted {
			x.ranks[b-x.first] = rank
		}
		at := map[way]map[int]int{}
		for b := x.first; b < x.last; b++ {
			w := way{c.candidates[b].offer.CapacityType, c.candidates[b].offer.ReservationID}
			if at[w] == nil {
				at[w] = map[int]int{}
			}
			i, known := at[w][c.candidates[b].typ]
			if !known {
				i = len(x.ways[w])
				at[w][c.candidates[b].typ] = i
				x.ways[w] = append(x.ways[w], nil)
			}
			x.ways[w][i] = append(x.ways[w][i], b)
		}
		for _, types := range x.ways {
			for _, candidates := range types {
				slices.SortFunc(candidates, c.cheaper)
			}
			slices.SortFunc(types, func(a, b []int) int { return c.cheaper(a[0], b[0]) })
		}
	}
	return x.ways[way{o.CapacityType, o.ReservationID}]
}

// cheaper orders candidates by price, then by name, zone and index, so that the order is total.
func (c *catalog) cheaper(a, b int) int {
	if by := cmp.Compare(c.candidates[a].price, c.candidates[b].price); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(c.typeOf(a).Name, c.typeOf(b).Name), cmp.Compare(c.candidates[a].offer.Zone, c.candidates[b].offer.Zone), a-b)
}

// setSpecial finds the candidates of special hardware (InstanceType.Special). Reserved capacity is never among them: it is paid for
// whether it is used or not.
func (c *catalog) setSpecial() {
	c.special = packing.NewBits(len(c.candidates))
	for b := range c.candidates {
		if c.typeOf(b).Special && c.candidates[b].offer.CapacityType != capacity.CapacityTypeReserved {
			c.special.Set(b)
		}
	}
}
