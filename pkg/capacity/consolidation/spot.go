package consolidation

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// alike is the part of the cheapest offering's price by which an on-demand offering may be dearer and still be an alternative to the cheapest.
const alike = 0.01

// spotPrice returns the price, in $/h, of the dearest of the spot offerings that a new node may become. It may be bought if count is at least needed:
// in place of spot nodes alone, count is the number of its instance types, all of them cheaper, and needed the pools' flexibility. With fewer types,
// a node would be replaced again and again, until it is of the cheapest type, which is interrupted most.
func (p *plan) spotPrice(t *trial, b *purchase) (price float64, count, needed int) {
	flexible, ceiling := 0, 0.0
	onlySpot := true
	for _, at := range t.from {
		n := &p.c.nodes[at]
		ceiling += p.c.zones.worth(n)
		switch {
		case n.c == nil:
			onlySpot = onlySpot && p.c.market.spot(n.offer)
		case n.c.CapacityType != capacity.CapacityTypeSpot:
			onlySpot = false
		default:
			policy, _ := p.c.policy(n.c)
			flexible = max(flexible, policy.SpotFlexibility)
		}
	}
	offers, _ := p.c.market.alternatives(b.offer, b.pods, ceiling, max(flexible, 1), t.rule, "")
	if len(offers) == 0 {
		return b.price, 0, 1
	}
	last := offers[len(offers)-1]
	price = p.c.market.catalog.Candidates[last].Price
	if !onlySpot {
		return price, 1, 1
	}
	b.types = max(flexible, 1)
	return price, p.c.market.types(offers), flexible
}

// types returns how many instance types the candidates have.
func (m *market) types(candidates []int) int {
	seen := map[*capacity.InstanceType]bool{}
	for _, b := range candidates {
		seen[m.catalog.TypeOf(b)] = true
	}
	return len(seen)
}

// alternatives returns the candidates that a new node with these pods may be launched as instead of the offer, cheapest first. They are of the
// same pool and capacity type, with the same daemons and the same values of the labels that the pods depend on, and cost less than ceiling.
// On-demand candidates cost hardly more than the cheapest of them; spot candidates are of as many instance types as flexible says. The rule
// allows all of them. With a zone they are in that zone. short says which minValues of the pool can't be met.
func (m *market) alternatives(offer int, pods []share, ceiling float64, flexible int, r rule, zone string) (out []int, short string) {
	c := m.catalog
	own := m.offers[offer]
	x := &c.Candidates[own]
	pool := c.Pools[x.Pool]
	need := slices.Clone(m.total(pods))
	fixed := m.fixedLabels(pods)
	if zone != "" { // it is as certain as the zone of the offer, and pods say themselves whether they may be there
		fixed = slices.DeleteFunc(fixed, func(key string) bool { return key == capacity.LabelZone })
	}
	like := c.Compatibility(own, fixed)
	some := selection{market: m, flexible: flexible, types: map[*capacity.InstanceType]bool{}}
	for _, b := range c.Cheapest(own) {
		if c.Candidates[b].Price >= ceiling {
			break
		}
		if zone != "" && c.Candidates[b].Offer.Zone != zone {
			continue
		}
		if !fits(c.RoomOf(b), need) || !m.allow(b, pods) || c.Special.Has(b) && !c.Special.Has(own) || !like.InstanceType(b) || !like.Offer(b) || !m.allowed(r, b) || m.usesMore(b, own) {
			continue
		}
		if some.full(b) {
			if !pool.Minimum {
				break
			}
		} else {
			some.add(b)
		}
		out = append(out, b)
	}
	chosen := out[:some.n]
	for n := len(chosen); pool.Minimum; n = min(2*n+1, len(out)) {
		if chosen, short = c.Choose(pool, out[:n]); short == "" || n == len(out) {
			break
		}
	}
	if short != "" {
		return nil, short
	}
	return chosen, ""
}

// usesMore reports whether candidate b uses more than candidate a of the commitment that pays for both.
func (m *market) usesMore(b, a int) bool {
	more, covered := m.catalog.CommitmentUse(b)
	own, _ := m.catalog.CommitmentUse(a)
	return covered && more.Amount > own.Amount
}

// selection are the first candidates, in order of price, until there are enough.
type selection struct {
	market   *market
	flexible int     // of how many instance types spot candidates may be
	n        int     // number of candidates
	cheapest float64 // price of the first candidate, in $/h
	types    map[*capacity.InstanceType]bool
	closed   bool // there are enough
}

// full reports whether there are enough without b, which isn't cheaper than any of them.
func (s *selection) full(b int) bool {
	if s.n == 0 {
		return false
	}
	x, known := &s.market.catalog.Candidates[b], s.types[s.market.catalog.TypeOf(b)]
	if x.Offer.CapacityType != capacity.CapacityTypeSpot {
		s.closed = s.closed || x.Price > s.cheapest*(1+alike)
	} else if !known && len(s.types) == s.flexible {
		s.closed = true
	}
	s.closed = s.closed || !known && len(s.types) == capacity.MaxFleetTypes
	return s.closed
}

func (s *selection) add(b int) {
	if s.n == 0 {
		s.cheapest = s.market.catalog.Candidates[b].Price
	}
	s.n++
	s.types[s.market.catalog.TypeOf(b)] = true
}

// allow reports whether all of the pods may be on a candidate of the catalog.
func (m *market) allow(b int, pods []share) bool {
	return !slices.ContainsFunc(pods, func(s share) bool { return !m.kinds.all[s.kind].all.Has(b) })
}

// fixedLabels returns the labels that pods depend on: a new node has the same value of each, whatever is launched for it.
func (m *market) fixedLabels(pods []share) []string {
	var out []string
	seen := map[int]bool{}
	for _, s := range pods {
		k := &m.kinds.all[s.kind]
		if seen[k.asks] {
			continue
		}
		seen[k.asks] = true
		for _, term := range m.kinds.asks[k.asks].Terms {
			for key, r := range term {
				if (!r.AllowsAbsent() || key == capacity.LabelZone) && key != capacity.LabelHostname && key != capacity.FieldNodeName && !slices.Contains(out, key) {
					out = append(out, key)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
