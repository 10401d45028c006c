package catalog

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

// Catalog is everything that could be bought: an offering candidate (Candidate) for each pool, choice of labels, instance type and available
// offering.
type Catalog struct {
	Pools      []*PoolOffers
	Candidates []Candidate
	dims       *Dims
	// Tiers are the candidates by weight of their pools, highest first.
	Tiers []packing.Bits
	// Budgets are limits, capacity reservations and commitments.
	Budgets Budgets
	// Special are the candidates of special hardware (InstanceType.Special), which only pods get that fit nothing else.
	Special packing.Bits
	// Surcharged: there are candidates whose price is raised by leavingCosts.
	Surcharged bool
	// matched are the candidates that satisfy what a pod requires of a node, by Asks.ID.
	matched map[string]packing.Bits
	// rooms are what DaemonSets leave of candidates' capacities, by dimension. Candidates with the same type and daemons share one
	// (Candidate.Room). They are valid for one plan.
	rooms [][]int64
}

// leavingCosts multiplies the price of capacity that the cloud recommends moving off (Offer.Leaving): what costs less than that is preferred.
const leavingCosts = 1.1

// PoolOffers is a pool with the instance types that its requirements allow.
type PoolOffers struct {
	*capacity.Pool
	Index int // position in Catalog.Pools
	// Tier is the same for pools of equal weight, which compete on price; 0 has the highest weight.
	Tier         int
	Allowed      []*capacity.InstanceType
	columns      map[string]*column // by label key
	commons      map[string]*common // cache of the method common, by set of types
	LabelChoices []labelChoice
	// LimitBudgets are the pool's limits, by resource, as indexes into the budgets (Catalog.Left).
	LimitBudgets map[corev1.ResourceName]int
	// narrowed is how many types the requirements exclude.
	narrowed int
	// Minimum: a requirement has minValues.
	Minimum bool
}

// labelChoice is one choice of values for the labels that the pool leaves open.
type labelChoice struct {
	Labels      map[string]string // all labels that the pool gives a node, with these values
	First, Last int               // its candidates: those with indexes from First to Last-1
	ways        map[way][][]int   // its candidates, by way and type, the cheapest first
	sorted      map[way][]int     // its candidates, by way, the cheapest first
	Ranks       []int             // its candidates' positions in order of price, by index minus First
}

// Candidate is an offering candidate: a node that can be bought.
type Candidate struct {
	Pool, LabelChoice, typ int
	Offer                  capacity.Offer
	Price                  float64 // in $/h as prices are compared, with factors and surcharges
	Room                   int     // index into Catalog.rooms
	daemons                string  // the daemons that run on it, as a key of DaemonSets.byKey
	uses                   []packing.Use
	// covered is 1 plus the index, in Coverage.Commitments, of the commitment that pays for it; 0: none does. plain is then the index of the
	// candidate for the same offering that no commitment pays for.
	covered, plain int
}

// coveredShare multiplies the price of capacity that a commitment pays for: it becomes cheaper than any other, as reserved capacity is, and the order
// of prices among such candidates stays the same. laterCosts raises the price a little for each further commitment, so that the first is preferred.
const coveredShare, laterCosts = 1e-7, 1e-3

// column holds one label's values over the types of a pool.
type column struct {
	values []string
	of     []int // index into values, by type; -1: the label is absent
}

func (c *Catalog) TypeOf(b int) *capacity.InstanceType {
	return c.Pools[c.Candidates[b].Pool].Allowed[c.Candidates[b].typ]
}

func (c *Catalog) RoomOf(b int) []int64 { return c.rooms[c.Candidates[b].Room] }

// Label returns a label that a node bought as candidate b will have.
func (c *Catalog) Label(b int, key string) (string, bool) {
	x := &c.Candidates[b]
	if v, ok := x.Offer.Label(key); ok {
		return v, true
	}
	p := c.Pools[x.Pool]
	if v, ok := p.LabelChoices[x.LabelChoice].Labels[key]; ok {
		return v, true
	}
	v, ok := p.Allowed[x.typ].Labels[key]
	return v, ok
}

// newCatalog lists what can be bought. mentioned are the labels that the demand asks for.
func newCatalog(pools []*capacity.Pool, within Within, opts *capacity.Options, mentioned *Mentions) *Catalog {
	c := &Catalog{matched: map[string]packing.Bits{}, Budgets: Budgets{Total: within.Total, OfAll: map[corev1.ResourceName]int{}}}
	if within.Coverage.Room() {
		c.Budgets.coverage = within.Coverage
	}
	if c.Budgets.Total != nil {
		for _, name := range slices.Sorted(maps.Keys(c.Budgets.Total.Limits)) {
			c.Budgets.OfAll[name] = c.Budgets.n
			c.Budgets.n++
		}
	}
	size := 0
	for _, p := range pools {
		for _, t := range p.Types {
			size += len(t.Offers)
		}
	}
	c.Candidates = make([]Candidate, 0, size)
	tier := -1
	for i, p := range pools {
		if i == 0 || p.Weight != pools[i-1].Weight {
			tier++
		}
		po := &PoolOffers{Pool: p, Index: i, Tier: tier, columns: map[string]*column{}, LimitBudgets: map[corev1.ResourceName]int{}}
		c.Pools = append(c.Pools, po)
		if p.Unready != "" || p.Replicas != nil {
			continue
		}
		po.narrow()
		for _, r := range p.Requirements {
			po.Minimum = po.Minimum || r.MinValues > 0
		}
		for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
			po.LimitBudgets[name] = c.Budgets.n
			c.Budgets.n++
		}
		po.LabelChoices = po.openLabels(mentioned)
		for v := range po.LabelChoices {
			po.LabelChoices[v].First = len(c.Candidates)
			c.addCandidates(po, v, opts)
			po.LabelChoices[v].Last = len(c.Candidates)
		}
	}
	c.addUses()
	c.setSpecial()
	for b := range c.Candidates {
		tier := c.Pools[c.Candidates[b].Pool].Tier
		for len(c.Tiers) <= tier {
			c.Tiers = append(c.Tiers, packing.NewBits(len(c.Candidates)))
		}
		c.Tiers[tier].Set(b)
	}
	return c
}

func (c *Catalog) addCandidates(p *PoolOffers, v int, opts *capacity.Options) {
	zones, hasZones := p.Requirements[capacity.LabelZone]
	cts, hasCTs := p.Requirements[capacity.LabelCapacityType]
	var others []capacity.Requirement // on labels of offers
	for _, key := range capacity.OfferLabels {
		if r, ok := p.Requirements[key]; ok && key != capacity.LabelZone && key != capacity.LabelCapacityType {
			others = append(others, r)
		}
	}
	for t, typ := range p.Allowed {
		for _, o := range typ.Offers {
			if !o.Available || !(o.Price >= 0) || math.IsInf(o.Price, 1) || hasZones && !zones.Has(o.Zone) || hasCTs && !cts.Has(o.CapacityType) ||
				o.CapacityType == capacity.CapacityTypeReserved && o.Remaining <= 0 ||
				slices.ContainsFunc(others, func(r capacity.Requirement) bool { return !o.Allows(r) }) {
				continue
			}
			price := opts.PriceOf(typ.Name, o.Price)
			if o.Leaving {
				c.Surcharged = true
				price *= leavingCosts
			}
			c.Candidates = append(c.Candidates, Candidate{Pool: p.Index, LabelChoice: v, typ: t, Offer: o, Price: price})
			c.addCovered(opts)
		}
	}
}

// narrow keeps the types that satisfy the pool's requirements on labels of instance types.
func (p *PoolOffers) narrow() {
	var of []capacity.Requirement
	for _, r := range p.Requirements.Sorted() {
		if p.TypeLabel(r.Key) { // also the pool's own labels: a type that contradicts them can't be bought here
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
		p.Allowed = append(p.Allowed, t)
	}
}

// TypeLabel reports whether instance types set the label, rather than the pool.
func (p *PoolOffers) TypeLabel(key string) bool { return typeLabel(p.Pool, key) }

func typeLabel(p *capacity.Pool, key string) bool {
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

func (p *PoolOffers) column(key string) *column {
	if col, ok := p.columns[key]; ok {
		return col
	}
	col := &column{of: make([]int, len(p.Allowed))}
	index := map[string]int{}
	for t, typ := range p.Allowed {
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
// type, and the capacity reservation or the commitment that pays for it (Candidate.covered).
type way struct {
	capacityType, reservation string
	covered                   int
}

// WaysOf returns the candidates that are bought in the same way as candidate b, with its pool and choice of labels: by type, the cheapest first.
func (c *Catalog) WaysOf(b int) [][]int {
	x := &c.Candidates[b]
	return c.ways(c.Pools[x.Pool], x.LabelChoice)[c.wayOf(b)]
}

// OnDemand returns the candidates with choice v of a pool's labels that are bought on demand and that no commitment pays for: by type, the cheapest
// first.
func (c *Catalog) OnDemand(p *PoolOffers, v int) [][]int {
	return c.ways(p, v)[way{capacityType: capacity.CapacityTypeOnDemand}]
}

// ways returns the candidates with choice v of a pool's labels: by the way in which they are bought, then by type, the cheapest first.
func (c *Catalog) ways(p *PoolOffers, v int) map[way][][]int {
	x := &p.LabelChoices[v]
	if x.ways == nil {
		x.ways, x.sorted, x.Ranks = map[way][][]int{}, map[way][]int{}, make([]int, x.Last-x.First)
		sorted := make([]int, 0, x.Last-x.First)
		for b := x.First; b < x.Last; b++ {
			sorted = append(sorted, b)
		}
		slices.SortFunc(sorted, c.cheaper)
		for rank, b := range sorted {
			x.Ranks[b-x.First] = rank
			w := c.wayOf(b)
			x.sorted[w] = append(x.sorted[w], b)
		}
		at := map[way]map[int]int{}
		for b := x.First; b < x.Last; b++ {
			w := c.wayOf(b)
			if at[w] == nil {
				at[w] = map[int]int{}
			}
			i, known := at[w][c.Candidates[b].typ]
			if !known {
				i = len(x.ways[w])
				at[w][c.Candidates[b].typ] = i
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
	return x.ways
}

// cheaper orders candidates by price, then by name, zone and index, so that the order is total.
func (c *Catalog) cheaper(a, b int) int {
	if by := cmp.Compare(c.Candidates[a].Price, c.Candidates[b].Price); by != 0 {
		return by
	}
	return cmp.Or(cmp.Compare(c.TypeOf(a).Name, c.TypeOf(b).Name), cmp.Compare(c.Candidates[a].Offer.Zone, c.Candidates[b].Offer.Zone), a-b)
}

// Cheapest returns the same candidates as WaysOf, all in order of price.
func (c *Catalog) Cheapest(b int) []int {
	x := &c.Candidates[b]
	p := c.Pools[x.Pool]
	c.ways(p, x.LabelChoice)
	return p.LabelChoices[x.LabelChoice].sorted[c.wayOf(b)]
}

func (c *Catalog) wayOf(b int) way {
	x := &c.Candidates[b]
	return way{x.Offer.CapacityType, x.Offer.ReservationID, x.covered}
}

// setSpecial finds the candidates of special hardware (InstanceType.Special). Reserved capacity is never among them: it is paid for
// whether it is used or not.
func (c *Catalog) setSpecial() {
	c.Special = packing.NewBits(len(c.Candidates))
	for b := range c.Candidates {
		if c.TypeOf(b).Special && c.Candidates[b].Offer.CapacityType != capacity.CapacityTypeReserved {
			c.Special.Set(b)
		}
	}
}
