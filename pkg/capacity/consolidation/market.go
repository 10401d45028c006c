package consolidation

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// market is what can be bought for the pods of a pass.
type market struct {
	kinds   *kinds
	catalog *catalog.Catalog
	daemons *catalog.DaemonSets
	// offers are the offerings worth buying, cheapest first, as indexes of the catalog's candidates; sold are the same, in this order, for the packing.
	offers []int
	sold   []packing.Candidate
	// left is what is left of limits, capacity reservations and commitments, by the catalog's budgets.
	left    []int64
	settled bool // kinds may use only offers that have been available for a while
	// covered are the offers that a commitment pays for, as indexes of offers. left counts commitments as if the nodes that have to go were gone: credit
	// is, by budget, what these nodes still use of them, and only their replacements may count on it.
	covered packing.Bits
	credit  map[int]int64
	bound   float64 // lower bound, in $/h, of what nodes for all pods cost; 0: unknown
	memory  *memory
	scratch []int64
}

// memory is what is computed about offerings and kept between passes. It changes no answer.
type memory struct {
	catalog catalog.Memory
	offers  string             // the offers for which ids and packs are valid
	ids     map[string]int32   // kind.id, by what the packing knows of a kind
	packs   map[string]*packed // packings, by the pods that were packed and the number of offers
}

// packed is a packing of pods in new nodes. A load's Candidate is an index of market.offers, a share's Item an index of the pods that were packed.
type packed struct {
	loads []packing.Load
	cost  float64 // of the new nodes, in $/h
	whole bool    // all pods have a place
}

// maxPacks limits how many packings, and ids, are kept.
const maxPacks = 200_000

// newMarket returns what can be bought. coverage is what is left of commitments once the nodes that have to go have left.
func newMarket(view *capacity.View, ks *kinds, mentions *catalog.Mentions, o *Options, mem *memory, coverage *capacity.Coverage) *market {
	within := catalog.Within{Total: capacity.TotalOf(view.Pools), Coverage: coverage}
	m := &market{kinds: ks, memory: mem, catalog: mem.catalog.Catalog(view.Pools, within, &o.Prices, mentions)}
	m.daemons = m.catalog.AddDaemons(view.DaemonSets, ks.dims)
	m.left, m.credit = m.catalog.Left(), map[int]int64{}
	if coverage != view.Coverage {
		for i := range coverage.Commitments {
			if budget, ok := m.catalog.CommitmentBudget(i); ok {
				m.credit[budget] = coverage.Left(i) - view.Coverage.Left(i)
			}
		}
	}
	m.match(o)
	m.list()
	m.value(m.order())
	return m
}

// match finds the candidates that may be bought for each kind: those of the pools of the highest weight that hold a pod, without special
// hardware unless nothing else does.
func (m *market) match(o *Options) {
	c := m.catalog
	for i := range m.kinds.all {
		k := &m.kinds.all[i]
		all := c.Matching(&m.kinds.asks[k.asks]).Clone()
		if k.class.ByOthers || k.fixed {
			clear(all)
		}
		if len(k.class.HostPorts) > 0 {
			all.AndNot(m.daemons.PortsTaken(k.class.HostPorts, len(c.Candidates)))
		}
		for b := range c.Candidates {
			if all.Has(b) && (packing.Fits(c.RoomOf(b), k.need, 1) == 0 || k.least > 0 && satisfied(k.class, func(key string) (string, bool) { return c.Label(b, key) }) < k.least) {
				all.Clear(b)
			}
		}
		m.forbid(k, all, o.Prices.Forbidden)
		k.all = m.firstTier(all)
	}
}

func (m *market) forbid(k *kind, all packing.Bits, forbidden []capacity.Forbidden) {
	for i := range forbidden {
		f := &forbidden[i]
		if f.Node != "" || f.Class != k.class.Key {
			continue
		}
		for b := range m.catalog.Candidates {
			x := &m.catalog.Candidates[b]
			if m.catalog.Pools[x.Pool].Name == f.Pool && f.RulesOut(&x.Offer) {
				all.Clear(b)
			}
		}
	}
}

func (m *market) firstTier(all packing.Bits) packing.Bits {
	for _, tier := range m.catalog.Tiers {
		in := all.Clone()
		if in.And(tier); !in.Any() {
			continue
		}
		plain := in.Clone()
		if plain.AndNot(m.catalog.Special); plain.Any() {
			return plain
		}
		return in
	}
	return all
}

// list finds the offers worth buying.
func (m *market) list() {
	c := m.catalog
	items := make([]catalog.Item, len(m.kinds.all))
	for i := range m.kinds.all {
		items[i] = catalog.Item{Candidates: m.kinds.all[i].all, Need: m.kinds.all[i].need}
	}
	m.offers = slices.DeleteFunc(c.Prune(items), func(b int) bool { return !m.affordable(b, 1) })
	slices.SortStableFunc(m.offers, func(a, b int) int {
		if pa, pb := c.Candidates[a].Price, c.Candidates[b].Price; pa != pb {
			if pa < pb {
				return -1
			}
			return 1
		}
		return a - b
	})
	var sign []byte
	m.covered = packing.NewBits(len(m.offers))
	for i, b := range m.offers {
		if c.Covered(b) {
			m.covered.Set(i)
			sign = append(sign, "covered"...)
		}
		m.sold = append(m.sold, packing.Candidate{Room: c.RoomOf(b), Price: c.Candidates[b].Price, Scarce: c.Paid(b)})
		sign = binary.LittleEndian.AppendUint64(sign, math.Float64bits(c.Candidates[b].Price))
		for _, v := range c.RoomOf(b) {
			sign = binary.AppendVarint(sign, v)
		}
		sign = append(sign, c.Candidates[b].Offer.CapacityType...)
	}
	if m.memory.offers != string(sign) || m.memory.packs == nil || len(m.memory.packs) > maxPacks || len(m.memory.ids) > maxPacks {
		m.memory.offers, m.memory.ids, m.memory.packs = string(sign), map[string]int32{}, map[string]*packed{}
	}
}

// order finds which offers kinds may use, and gives kinds an order that doesn't depend on earlier passes. It returns what they need and may
// use, as keys.
func (m *market) order() []string {
	keys := make([]string, len(m.kinds.all))
	var key []byte
	for i := range m.kinds.all {
		k := &m.kinds.all[i]
		k.may = packing.NewBits(len(m.offers))
		for j, b := range m.offers {
			if k.all.Has(b) && (!m.settled || m.allowed(rule{settled: true}, b)) {
				k.may.Set(j)
			}
		}
		key = k.may.AppendTo(key[:0])
		for _, n := range k.need {
			key = binary.AppendVarint(key, n)
		}
		keys[i] = string(key)
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	for rank, i := range order {
		m.kinds.all[i].rank = int32(rank)
	}
	return keys
}

// settle forbids the offers that were unavailable a short time ago, before the moves are planned that needn't be made. What pods are worth stays the
// same.
func (m *market) settle() {
	if m.settled = slices.ContainsFunc(m.offers, func(b int) bool { return !m.allowed(rule{settled: true}, b) }); m.settled {
		m.identify(m.order())
	}
}

// value sets what pods are worth (kind.value), and gives kinds their ids. A packing depends on what pods are worth, so kinds with equal keys whose
// pods are worth different amounts (in different passes) get different ids.
func (m *market) value(keys []string) {
	p := &packing.Problem{Candidates: m.sold}
	for i := range m.kinds.all {
		k := &m.kinds.all[i]
		p.Items = append(p.Items, packing.Item{Need: k.need, Count: k.count, Candidates: k.may})
	}
	values, floors := packing.Values(p)
	for i := range m.kinds.all {
		k := &m.kinds.all[i]
		k.value = values[i]
		if floors != nil {
			k.floor = floors[i]
			m.bound += k.floor * float64(k.count)
		}
	}
	m.identify(keys)
}

// identify gives kinds their ids, once it is known what they are worth.
func (m *market) identify(keys []string) {
	for i := range m.kinds.all {
		k := &m.kinds.all[i]
		key := binary.LittleEndian.AppendUint64([]byte(keys[i]), math.Float64bits(k.value))
		key = binary.LittleEndian.AppendUint64(key, math.Float64bits(k.floor))
		id, ok := m.memory.ids[string(key)]
		if !ok {
			id = int32(len(m.memory.ids))
			m.memory.ids[string(key)] = id
		}
		k.id = id
	}
}

// affordable reports whether a candidate of the catalog can be bought n times.
func (m *market) affordable(b, n int) bool {
	for _, use := range m.catalog.Uses(b) {
		if capacity.SatMul(use.Amount, int64(n)) > m.left[use.Budget] {
			return false
		}
	}
	return true
}

// price returns the price of an offer.
func (m *market) price(offer int) float64 { return m.sold[offer].Price }

// pool returns the pool of an offer.
func (m *market) pool(offer int) *catalog.PoolOffers {
	return m.catalog.Pools[m.catalog.Candidates[m.offers[offer]].Pool]
}

// spot reports whether an offer is spot capacity.
func (m *market) spot(offer int) bool {
	return m.catalog.Candidates[m.offers[offer]].Offer.CapacityType == capacity.CapacityTypeSpot
}

// below returns how many offers are cheaper than a price.
func (m *market) below(price float64) int {
	lo, _ := slices.BinarySearchFunc(m.sold, price, func(c packing.Candidate, price float64) int {
		if c.Price < price {
			return -1
		}
		return 1
	})
	return lo
}

// floorOf returns a lower bound for what new nodes for these pods cost.
func (m *market) floorOf(pods []share) float64 {
	sum := 0.0
	for _, s := range pods {
		sum += m.kinds.all[s.kind].floor * float64(s.n)
	}
	return sum
}

// total adds up what pods need, in m.scratch.
func (m *market) total(pods []share) []int64 {
	m.scratch = slices.Grow(m.scratch[:0], m.kinds.dims.Len())[:m.kinds.dims.Len()]
	clear(m.scratch)
	for _, s := range pods {
		for d, v := range m.kinds.all[s.kind].need {
			m.scratch[d] = capacity.SatAdd(m.scratch[d], capacity.SatMul(v, int64(s.n)))
		}
	}
	return m.scratch
}

// together reports whether all of the pods may share one node.
func (m *market) together(pods []share) bool {
	for i, s := range pods {
		k := &m.kinds.all[s.kind]
		if int(s.n) > k.most {
			return false
		}
		for _, other := range pods[:i] {
			if len(k.apart) > 0 && slices.Contains(k.apart, other.kind) {
				return false
			}
		}
	}
	return true
}

// single returns the cheapest of the first n offers that holds all pods in one node, and that may be bought; -1: none.
func (m *market) single(pods []share, n int, r rule) int {
	if !m.together(pods) {
		return -1
	}
	need := m.total(pods)
	for i := range n {
		if packing.Fits(m.sold[i].Room, need, 1) > 0 && m.serves(i, pods) && m.allowed(r, m.offers[i]) && (!m.covered.Has(i) || m.affordable(m.offers[i], 1)) {
			return i
		}
	}
	return -1
}

func (m *market) serves(offer int, pods []share) bool {
	for _, s := range pods {
		if !m.kinds.all[s.kind].may.Has(offer) {
			return false
		}
	}
	return true
}

// withdrawCredit takes what nodes that have to go use of commitments out of what is left: these nodes are still there, so only what is bought in
// their place may count on it.
func (m *market) withdrawCredit() {
	for budget, amount := range m.credit {
		m.left[budget] -= amount
	}
	clear(m.credit)
}

// packable returns the offers that a packing may use for a kind: none that a commitment pays for, since a packing doesn't know how much a commitment
// has left.
func (m *market) packable(k *kind) packing.Bits {
	if !m.covered.Any() {
		return k.may
	}
	out := k.may.Clone()
	out.AndNot(m.covered)
	return out
}

// pack returns a packing of the pods in the first n offers. Pods must be sorted by rank of their kinds.
func (m *market) pack(pods []share, n int) *packed {
	var key []byte
	rules := m.rules(pods)
	if len(rules) == 0 {
		key = binary.AppendUvarint(key, uint64(n))
		for _, s := range pods {
			key = binary.AppendUvarint(key, uint64(m.kinds.all[s.kind].id))
			key = binary.AppendUvarint(key, uint64(s.n))
		}
		if out, ok := m.memory.packs[string(key)]; ok {
			return out
		}
	}
	p := &packing.Problem{Candidates: m.sold[:n], Rules: rules}
	for _, s := range pods {
		k := &m.kinds.all[s.kind]
		p.Items = append(p.Items, packing.Item{Need: k.need, Count: int(s.n), Candidates: m.packable(k), Value: k.value, Floor: k.floor})
	}
	r := packing.Pack(p, packing.Quick)
	out := &packed{loads: r.Loads, cost: r.Cost, whole: !slices.ContainsFunc(r.Left, func(n int) bool { return n > 0 })}
	if len(rules) == 0 {
		m.memory.packs[string(key)] = out
	}
	return out
}

// rules tells the packing how many pods of a kind may share a node, where that is limited, and which kinds may not share one.
func (m *market) rules(pods []share) []packing.Rule {
	var out []packing.Rule
	for i, s := range pods {
		k := &m.kinds.all[s.kind]
		if k.most < math.MaxInt {
			out = append(out, packing.Rule{Members: []int{i}, Owners: []packing.Owner{{Item: i, Limit: k.most}}})
		}
		for j, other := range pods {
			if len(k.apart) > 0 && slices.Contains(k.apart, other.kind) {
				out = append(out, packing.Rule{Members: []int{j}, Owners: []packing.Owner{{Item: i}}})
			}
		}
	}
	return out
}
