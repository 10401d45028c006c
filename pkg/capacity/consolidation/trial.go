package consolidation

import (
	"cmp"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// trial is what emptying some nodes would mean: where their pods would go, and what would be bought.
type trial struct {
	from   []int32 // the nodes
	rule   rule    // what may be bought
	placed []place
	buys   []purchase
	// saves is the price of the nodes less that of what would be bought, in $/h. disruption is 1 for each node and the disruption costs of its pods.
	saves, disruption float64
	// kept is why the nodes can't be emptied; empty kind: they can.
	kept Kept
	// rough: new nodes were not sought, because even at the lower bound of their price the score would be too low. saves is what would be
	// saved at that price.
	rough bool
}

// score is what a trial saves per disruption.
func (t *trial) score() float64 { return t.saves / t.disruption }

// cost returns what the new nodes cost, in $/h.
func (t *trial) cost() float64 {
	sum := 0.0
	for i := range t.buys {
		sum += t.buys[i].price
	}
	return sum
}

// purchase is a new node with pods.
type purchase struct {
	offer int // index of market.offers
	pods  []share
	price float64 // of the dearest offering that it may become, in $/h
	// types is, for a spot node that replaces only spot nodes, as how many instance types it must be possible to launch it; 0: any number.
	types int
}

// plan empties nodes of a cluster, in numbers.
type plan struct {
	c      *cluster
	r      *receivers
	totals map[string]totals
	// kept is why nodes are kept, by node.
	kept []Kept
	// steps is how many trials were carried out. As long as it stays the same, another trial of the same node would have the same result.
	steps int
	// most is how many existing nodes one move may empty.
	most int32
	// separate: no pods go to new nodes that earlier moves of the pass buy.
	separate bool
	// Working memory, which each trial and each commit overwrites.
	leftover, order []share
	placed          []place
	roots           []int32
	sources         []arrival
}

// lowest is the smallest part of a node's price that a move must save: less may be a rounding error.
const lowest = 1e-6

// try finds out what emptying the nodes would mean, and leaves everything as it was. forced: they have to go, at any price that their rule
// allows, and new nodes are always sought. Otherwise the trial is rough if its score would be below least.
func (p *plan) try(from []int32, least float64, forced bool) *trial {
	t := &trial{from: from}
	ceiling, limit := 0.0, 0.0
	for _, at := range from {
		n := &p.c.nodes[at]
		ceiling += n.price
		limit += p.c.zones.worth(n)
		t.disruption += n.disruption
	}
	t.rule = p.c.ruleOf(from)
	limit *= 1 - lowest
	if forced {
		limit = t.rule.most(ceiling)
	}
	p.gather(from)
	p.r.begin(from)
	p.roots = p.c.roots(p.roots[:0], from)
	t.saves = ceiling
	p.leftover = p.r.homeless(p.order, p.leftover[:0])
	if low, kept, hopeless := p.hopeless(t, limit, least); hopeless {
		t.saves, t.kept = ceiling-low, kept
		return t
	}
	p.leftover = p.leftover[:0]
	placed := p.placed[:0]
	join := func(at int32) bool { return !p.separate && p.c.together(p.roots, at) <= p.most }
	for _, s := range p.order {
		var left int32
		if placed, left = p.r.fill(s, placed, join); left > 0 {
			p.leftover = append(p.leftover, share{s.kind, left})
		}
	}
	cost := 0.0
	if len(p.leftover) > 0 {
		cost, t.kept = p.buy(t, limit, least)
	}
	p.r.undo(placed)
	p.placed = placed
	if t.saves = ceiling - cost; t.kept.Kind == "" && !forced && cost >= limit {
		t.kept = Kept{Kind: Dearer, Cheapest: cost}
	}
	if t.kept.Kind == "" {
		t.placed = slices.Clone(placed)
	}
	return t
}

// gather sets order to the pods of the nodes, those of the highest value first.
func (p *plan) gather(from []int32) {
	p.order = p.order[:0]
	for _, at := range from {
		p.order = append(p.order, p.c.nodes[at].pods...)
	}
	if len(from) > 1 {
		slices.SortFunc(p.order, func(a, b share) int { return cmp.Compare(a.kind, b.kind) })
		out := p.order[:0]
		for _, s := range p.order {
			if last := len(out) - 1; last >= 0 && out[last].kind == s.kind {
				out[last].n += s.n
			} else {
				out = append(out, s)
			}
		}
		p.order = out
	}
	kinds := p.c.kinds.all
	slices.SortFunc(p.order, func(a, b share) int {
		return cmp.Or(cmp.Compare(kinds[b.kind].value, kinds[a.kind].value), cmp.Compare(a.kind, b.kind))
	})
}

// hopeless reports whether no new nodes for the pods left over can make the trial worth it. It returns why, or the lower bound of the new
// nodes' price if the trial's score would be below least even at that: then the trial is rough.
func (p *plan) hopeless(t *trial, limit, least float64) (low float64, why Kept, hopeless bool) {
	if len(p.leftover) == 0 {
		return 0, Kept{}, false
	}
	m, forced := p.c.market, math.IsInf(limit, 1)
	if !forced {
		for _, s := range p.order { // another scheduler may put its pods anywhere, also on the new node, which is bought for other pods
			if k := &m.kinds.all[s.kind]; k.class.ByOthers {
				return 0, Kept{Kind: Unmovable, Pod: k.sample, Message: "another scheduler places it, so the node isn't replaced"}, true
			}
		}
	}
	for _, s := range p.leftover {
		if k := &m.kinds.all[s.kind]; k.fixed || !k.may.Any() {
			return 0, Kept{Kind: Full, Pod: k.sample, Resource: p.c.shortage(s.kind)}, true
		}
	}
	if !forced && p.c.together(p.roots, -1) > p.most {
		return 0, Kept{Kind: Dearer, Cheapest: t.saves * (1 - lowest)}, true
	}
	low = m.floorOf(p.leftover)
	switch {
	case low >= limit:
		return 0, Kept{Kind: Dearer, Cheapest: low}, true
	case !forced && (t.saves-low)/t.disruption < least:
		t.rough = true
		return low, Kept{}, true
	}
	return low, Kept{}, false
}

// buy finds new nodes for the pods left over that cost less than limit, and returns what they cost. If the score would be below least even
// at the lower bound of their price, it returns this bound.
func (p *plan) buy(t *trial, limit, least float64) (float64, Kept) {
	if low, kept, hopeless := p.hopeless(t, limit, least); hopeless {
		return low, kept
	}
	m := p.c.market
	slices.SortFunc(p.leftover, func(a, b share) int {
		return cmp.Or(cmp.Compare(m.kinds.all[a.kind].rank, m.kinds.all[b.kind].rank), cmp.Compare(a.kind, b.kind))
	})
	n := len(m.sold)
	if !math.IsInf(limit, 1) {
		n = m.below(limit)
	}
	buys, cost := p.cheapest(t.rule, n)
	if buys == nil {
		return 0, p.tooDear(t.rule, n)
	}
	total := 0.0
	for i := range buys {
		b := &buys[i]
		b.price = m.price(b.offer)
		if m.spot(b.offer) && !math.IsInf(limit, 1) && !t.rule.leaves {
			price, count, needed := p.spotPrice(t, b)
			if count < needed {
				return cost, Kept{Kind: Flexibility, Count: count, Needed: needed, Cheapest: cost}
			}
			b.price = price
		}
		total += b.price
	}
	if kept := p.affordable(buys); kept.Kind != "" {
		return total, kept
	}
	t.buys = buys
	return total, Kept{}
}

// enough: a single node that costs at most this many times the lower bound is bought, and no set of several nodes is searched for.
const enough = 1.02

// cheapest returns the cheapest new nodes found among the first n offers.
func (p *plan) cheapest(r rule, n int) ([]purchase, float64) {
	m := p.c.market
	one := m.single(p.leftover, n, r)
	if one >= 0 && m.price(one) <= m.floorOf(p.leftover)*enough {
		return []purchase{{offer: one, pods: slices.Clone(p.leftover)}}, m.price(one)
	}
	best := m.pack(p.leftover, n)
	if best.whole && slices.ContainsFunc(best.loads, func(l packing.Load) bool { return !m.allowed(r, m.offers[l.Candidate]) }) {
		best = &packed{}
	}
	if one >= 0 && (!best.whole || m.price(one) <= best.cost*(1+1e-9)) {
		return []purchase{{offer: one, pods: slices.Clone(p.leftover)}}, m.price(one)
	}
	if !best.whole {
		return nil, 0
	}
	var out []purchase
	for _, l := range best.loads {
		pods := make([]share, len(l.Shares))
		for i, s := range l.Shares {
			pods[i] = share{p.leftover[s.Item].kind, int32(s.Count)}
		}
		slices.SortFunc(pods, func(a, b share) int { return cmp.Compare(a.kind, b.kind) })
		for range l.Times {
			out = append(out, purchase{offer: l.Candidate, pods: pods})
		}
	}
	return out, best.cost
}

// tooDear returns that nothing below the ceiling was found, with the price of a dearer node that would do or, if none is known, a lower bound.
func (p *plan) tooDear(r rule, n int) Kept {
	m := p.c.market
	if one := m.single(p.leftover, len(m.sold), r); one >= 0 {
		return Kept{Kind: Dearer, Cheapest: m.price(one)}
	}
	return Kept{Kind: Dearer, Cheapest: max(m.floorOf(p.leftover), m.price(max(0, n-1)))}
}

// affordable reports which limit, or capacity reservation, doesn't allow the purchases; zero: all do.
func (p *plan) affordable(buys []purchase) Kept {
	m := p.c.market
	for i := range buys {
		b := m.offers[buys[i].offer]
		if uses := m.catalog.Uses(b); len(uses) > 0 {
			for j := range uses {
				sum := int64(0)
				for k := range buys {
					for _, use := range m.catalog.Uses(m.offers[buys[k].offer]) {
						if use.Budget == uses[j].Budget {
							sum += use.Amount
						}
					}
				}
				if sum > m.left[uses[j].Budget] {
					if m.catalog.OfTotal(uses[j].Budget) {
						return Kept{Kind: TotalLimit}
					}
					return Kept{Kind: Limit, Name: m.pool(buys[i].offer).Name}
				}
			}
		}
	}
	return Kept{}
}

// commit carries a trial out in the plan.
func (p *plan) commit(t *trial) {
	p.steps++
	p.collect(t.from)
	for _, x := range t.placed {
		p.c.put(x.at, x.kind, x.n)
		p.r.changed(x.at)
		p.arrive(x.at, share{x.kind, x.n})
	}
	for i := range t.buys {
		b := &t.buys[i]
		room := p.c.market.sold[b.offer].Room
		at := int32(len(p.c.nodes))
		p.c.nodes = append(p.c.nodes, node{price: b.price, free: slices.Clone(room), size: room, disruption: 1, offer: b.offer, types: b.types, closed: b.types > 0, parent: at})
		for _, s := range b.pods {
			p.c.put(at, s.kind, s.n)
			p.arrive(at, s)
		}
		for _, use := range p.c.market.catalog.Uses(p.c.market.offers[b.offer]) {
			p.c.market.left[use.Budget] -= use.Amount
		}
		for _, from := range t.from {
			p.c.join(from, at)
		}
		p.r.add(at)
	}
	for _, at := range t.from {
		n := &p.c.nodes[at]
		n.gone = true
		p.r.changed(at)
		if n.view == nil { // it won't be bought
			for _, use := range p.c.market.catalog.Uses(p.c.market.offers[n.offer]) {
				p.c.market.left[use.Budget] += use.Amount
			}
		}
	}
}

// collect sets sources to the pods that the plan has on the nodes, sorted by kind, with the nodes where they are now.
func (p *plan) collect(from []int32) {
	p.sources = p.sources[:0]
	for _, at := range from {
		n := &p.c.nodes[at]
		for _, s := range n.own {
			p.sources = append(p.sources, arrival{s.kind, at, s.n})
		}
		p.sources = append(p.sources, n.from...)
	}
	slices.SortStableFunc(p.sources, func(a, b arrival) int { return cmp.Compare(a.kind, b.kind) })
}

// arrive records which pods come to a node, taken from the sources. If the node is new, it becomes part of the move of the nodes that they come from.
func (p *plan) arrive(at int32, s share) {
	i, _ := slices.BinarySearchFunc(p.sources, s.kind, func(a arrival, kind int32) int { return cmp.Compare(a.kind, kind) })
	x := &p.c.nodes[at]
	for n := s.n; n > 0 && i < len(p.sources) && p.sources[i].kind == s.kind; i++ {
		source := &p.sources[i]
		take := min(n, source.n)
		if take == 0 {
			continue
		}
		if x.from == nil {
			x.from = make([]arrival, 0, 4)
		}
		x.from = append(x.from, arrival{s.kind, source.origin, take})
		if x.view == nil {
			p.c.join(source.origin, at)
		}
		n -= take
		source.n -= take
	}
}
