package planner

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// item is what the packing has to place: pods of a batch that may use the same candidates.
type item struct {
	podBatch   *podBatch
	candidates packing.Bits
	n          int // number of pods
	// assigned: assign has chosen the candidates' domain bucket, because of constraints among pods.
	assigned bool
}

// buy places what it can of the pod batches on new nodes from one tier of pools.
func (r *run) buy(podBatches []*podBatch, tier int) {
	var items []item
	var loads []load
	// Pods are assigned evenly to domains, but if limits leave some of them out, the others may no longer be spread evenly. Then fewer pods are
	// tried: a quarter, a sixteenth and so on, until nodes for all of these can be bought or one pod of each batch is left. The next round
	// continues with the rest.
	for part := 1; ; part *= 4 {
		items = r.items(podBatches, tier, part)
		var even bool
		var bound float64
		loads, bound, even = r.pack(items)
		r.unassume()
		if even || !slices.ContainsFunc(items, func(it item) bool { return it.assigned && it.podBatch.left > part }) {
			r.bound += bound
			break
		}
	}
	for _, l := range loads {
		for range l.times {
			n := r.open(l.candidate)
			for _, s := range l.shares {
				r.place(items[s.Item].podBatch, n, s.Count)
			}
		}
	}
	for _, u := range podBatches {
		if u.Follows() {
			r.grow(u, tier)
		}
	}
}

// items returns the batches' pods to be packed. Of a batch whose pods have to be assigned to domain buckets it takes only the fraction 1/part of
// them, rounded up. If a batch gets no pods assigned, because its affinity needs pods of another batch, say, it is tried again after the others.
func (r *run) items(podBatches []*podBatch, tier, part int) []item {
	var items []item
	r.claimed = map[int]int64{}
	for waiting := podBatches; len(waiting) > 0; {
		var next []*podBatch
		for _, u := range waiting {
			if u.Follows() {
				continue
			}
			before, assumed := len(items), len(r.assumed)
			items = append(items, r.itemsOf(u, tier, part)...)
			if len(items) == before && len(r.assumed) == assumed {
				next = append(next, u)
			}
		}
		if len(next) == len(waiting) {
			break
		}
		waiting = next
	}
	return items
}

// itemsOf returns the batch's pods for this tier, by domain bucket.
func (r *run) itemsOf(u *podBatch, tier, part int) []item {
	candidates := r.tierCandidates(u, tier)
	if u.left == 0 || !candidates.Any() {
		return nil
	}
	keys := u.CoarseKeys()
	if len(keys) == 0 {
		return []item{{u, candidates, u.left, false}}
	}
	domainBuckets := append(r.domainBuckets(u, candidates, keys), r.openBuckets(u)...)
	r.assign(u, domainBuckets, (u.left+part-1)/part)
	var out []item
	for _, c := range domainBuckets {
		switch {
		case c.n > 0 && c.node != nil:
			r.expects = true
		case c.n > 0:
			out = append(out, item{u, c.candidates, c.n, true})
		}
	}
	return out
}

// tierCandidates returns the candidates in a tier's pools that may be bought for the batch.
func (r *run) tierCandidates(u *podBatch, tier int) packing.Bits {
	candidates := u.offered.Clone()
	candidates.And(r.catalog.Tiers[tier])
	return candidates
}

// load is what a number of identical planned nodes hold.
type load struct {
	candidate int             // index in catalog.Candidates
	shares    []packing.Share // pods by item
	times     int             // number of nodes
}

// pack lets package packing choose new nodes for the items, among the candidates that Prune keeps. bound is a lower bound for the cost of what is
// packed, in $/h; even reports whether all pods that were assigned to domain buckets are packed, so that they are as even as assign has made them.
func (r *run) pack(items []item) (loads []load, bound float64, even bool) {
	if len(items) == 0 {
		return nil, 0, true
	}
	p := &packing.Problem{Budgets: r.budgets}
	worth := make([]catalog.Item, len(items))
	for i, it := range items {
		worth[i] = catalog.Item{Candidates: it.candidates, Need: it.podBatch.need}
	}
	candidates := r.catalog.Prune(worth)
	for _, b := range candidates {
		p.Candidates = append(p.Candidates, packing.Candidate{Room: r.catalog.RoomOf(b), Price: r.catalog.Candidates[b].Price, Uses: r.catalog.Uses(b),
			Scarce: r.catalog.Paid(b)})
	}
	for _, it := range items {
		may := packing.NewBits(len(candidates))
		for i, b := range candidates {
			if it.candidates.Has(b) {
				may.Set(i)
			}
		}
		p.Items = append(p.Items, packing.Item{Need: it.podBatch.need, Count: it.n, Candidates: may})
	}
	p.Rules = r.rules(items)
	out := packing.Pack(p, r.effort)
	if r.effort > 0 {
		r.effort = max(0, r.effort-out.Effort)
	}
	for _, l := range out.Loads {
		loads = append(loads, load{candidates[l.Candidate], l.Shares, l.Times})
	}
	for i := range out.Values {
		items[i].podBatch.value = out.Values[i]
	}
	even = true
	for i, n := range out.Left {
		even = even && (n == 0 || !items[i].assigned || !p.HoldsOne(i)) // pods that fit no candidate aren't left out because of a limit
	}
	return loads, out.Bound, even
}

// rules turns the topology groups over host names, whose constraints limit how many pods share a node, into the packing's rules among items.
func (r *run) rules(items []item) []packing.Rule {
	var out []packing.Rule
	for _, g := range r.topo.Groups {
		if !g.Host {
			continue
		}
		var rule packing.Rule
		for i, it := range items {
			for j := range it.podBatch.Owned {
				o := &it.podBatch.Owned[j]
				if limit, ok := o.Kind.Limit(o); ok && o.Group == g {
					rule.Owners = append(rule.Owners, packing.Owner{Item: i, Limit: limit})
				}
			}
			if slices.Contains(it.podBatch.Member, g) {
				rule.Members = append(rule.Members, i)
			}
		}
		if len(rule.Owners) > 0 && len(rule.Members) > 0 {
			out = append(out, rule)
		}
	}
	return out
}

// grow places pods that must share a node with other pods, on planned nodes that are made larger. For the first of such pods it adds one
// new node, for as many of them as possible.
func (r *run) grow(u *podBatch, tier int) {
	candidates := r.tierCandidates(u, tier)
	for u.left > 0 {
		before := u.left
		if n, b := r.growth(u, candidates); n != nil {
			r.enlarge(n, b)
		} else if !r.openFirst(u, candidates) {
			return
		}
		if r.fillOpen(u); u.left == before {
			return
		}
	}
}

// growth returns the planned node that can be made to take a pod of the batch at the least cost, and the candidate to buy it as.
func (r *run) growth(u *podBatch, candidates packing.Bits) (*node, int) {
	var best *node
	bestCandidate, bestCost := -1, 0.0
	for _, n := range r.nodes[r.existing:] {
		if n.gone || !u.candidates.Has(n.candidate) || u.RoomOn(n.index, 1, r) == 0 || !u.Allows(r.siteIfPlaced(n)) {
			continue
		}
		like := r.catalog.Compatibility(n.candidate, n.fixed)
		plain := r.catalog.Compatibility(r.catalog.Plain(n.candidate), n.fixed)
		for b := range r.catalog.Candidates {
			// A node of special hardware may become a larger one for pods that must share it. A node that a commitment pays for may become a larger
			// one that no commitment pays for.
			if !candidates.Has(b) && !(r.catalog.Special.Has(n.candidate) && u.candidates.Has(b)) || !like.Is(b) && !plain.Is(b) || !n.admitsPods(b) || !r.holdsMore(n, b, u) || !r.affordableAs(n, b) {
				continue
			}
			if cost := r.catalog.Candidates[b].Price - r.catalog.Candidates[n.candidate].Price; best == nil || cost < bestCost {
				best, bestCandidate, bestCost = n, b, cost
			}
		}
	}
	return best, bestCandidate
}

// freeAs returns the capacity left on a planned node if it were bought as candidate b.
func (r *run) freeAs(n *node, b int) []int64 {
	room := slices.Clone(r.catalog.RoomOf(b))
	for _, s := range n.content {
		packing.Take(room, s.podBatch.need, s.n)
	}
	return room
}

// holdsMore reports whether candidate b holds what is on a planned node and one more pod of the batch.
func (r *run) holdsMore(n *node, b int, u *podBatch) bool {
	free := r.freeAs(n, b)
	for d, v := range free {
		if v < u.need[d] {
			return false
		}
	}
	return true
}

func (r *run) affordableAs(n *node, b int) bool {
	for _, use := range r.catalog.Uses(b) {
		left := r.budgets[use.Budget]
		for _, had := range r.catalog.Uses(n.candidate) {
			if had.Budget == use.Budget {
				left = capacity.SatAdd(left, had.Amount)
			}
		}
		if use.Amount > left {
			return false
		}
	}
	return true
}

func (r *run) enlarge(n *node, b int) {
	for _, use := range r.catalog.Uses(n.candidate) {
		r.budgets[use.Budget] += use.Amount
	}
	n.free, n.candidate = r.freeAs(n, b), b
	for _, use := range r.catalog.Uses(b) {
		r.budgets[use.Budget] -= use.Amount
	}
}

// openFirst buys a node for the first pods of a batch that must share a node: the cheapest that holds all of them, or else the one that
// holds most.
func (r *run) openFirst(u *podBatch, candidates packing.Bits) bool {
	if !u.First() {
		return false
	}
	best, bestFits := -1, 0
	for b := range r.catalog.Candidates {
		if !candidates.Has(b) || !r.affordable(b) || !u.Allows(r.siteBought(b)) {
			continue
		}
		fits := packing.Fits(r.catalog.RoomOf(b), u.need, u.left)
		if fits == 0 {
			continue
		}
		if best < 0 || fits > bestFits || fits == bestFits && r.catalog.Candidates[b].Price < r.catalog.Candidates[best].Price {
			best, bestFits = b, fits
		}
	}
	if best < 0 {
		return false
	}
	r.place(u, r.open(best), 1)
	return true
}

func (r *run) affordable(b int) bool {
	for _, use := range r.catalog.Uses(b) {
		if use.Amount > r.budgets[use.Budget] {
			return false
		}
	}
	return true
}
