package planner

import (
	"maps"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// domainBucket holds the candidates of a pod batch, or idle nodes with capacity for its pods, that have the same values for the
// labels over which its pods are counted.
type domainBucket struct {
	candidates packing.Bits
	first      int // one of its candidates
	site       topology.Site
	// node is one of the bucket's nodes; nil: the bucket holds candidates. room is how many of the batch's pods its nodes hold together.
	node *node
	room int
	// cost is the least that a pod costs there, in $/h, if pods share their nodes perfectly; alone is the least if it has a node to itself.
	cost, alone float64
	// paid is how many pods cost nothing there, because they fit on nodes that are paid for already: from capacity reservations, or covered by
	// commitments. each says, by the budget of the reservation or commitment, what one such node holds and takes.
	paid int
	each map[int]paidNode
	n    int // number of pods assigned to the bucket
}

// paidNode is a node that is from a capacity reservation, or that a commitment pays for.
type paidNode struct {
	pods   int   // how many of the batch's pods fit on it
	amount int64 // how much it takes from the budget
}

// next returns what the next pod costs there, in $/h; infinity: there is no more capacity there.
func (c *domainBucket) next() float64 {
	switch {
	case c.node != nil && c.n >= c.room:
		return math.Inf(1)
	case c.node != nil || c.n < c.paid:
		return 0
	}
	return c.cost
}

// part is candidates with the same values for some labels. front are those of them that none of the others can replace (Catalog.NonDominated).
type part struct {
	candidates packing.Bits
	front      []int
}

// parts splits candidates by their values for the keys, in the order of the candidates.
func (r *run) parts(candidates packing.Bits, keys []string) []*part {
	k := make(capacity.KeyBytes, 0, 1024)
	k.Count(len(keys))
	k.Text(keys...)
	id := string(candidates.AppendTo(k))
	if out, known := r.partsOf[id]; known {
		return out
	}
	var out []*part
	var all [][]int
	index := map[string]int{}
	var key []byte
	for b := range r.catalog.Candidates {
		if !candidates.Has(b) {
			continue
		}
		key = key[:0]
		for _, label := range keys {
			v, ok := r.catalog.Label(b, label)
			key = append(key, v...)
			if !ok {
				key = append(key, 1)
			}
			key = append(key, 0)
		}
		at, ok := index[string(key)]
		if !ok {
			at = len(out)
			index[string(key)] = at
			out, all = append(out, &part{candidates: packing.NewBits(len(r.catalog.Candidates))}), append(all, nil)
		}
		out[at].candidates.Set(b)
		all[at] = append(all[at], b)
	}
	for i, p := range out {
		p.front = r.catalog.NonDominated(all[i], func(int, int) bool { return true })
	}
	if r.partsOf == nil {
		r.partsOf = map[string][]*part{}
	}
	r.partsOf[id] = out
	return out
}

// domainBuckets returns the domain buckets of a batch's candidates in which capacity for one of its pods can be bought now.
func (r *run) domainBuckets(u *podBatch, candidates packing.Bits, keys []string) []*domainBucket {
	var out []*domainBucket
	for _, p := range r.parts(candidates, keys) {
		c := &domainBucket{candidates: p.candidates, first: p.front[0], site: r.siteBought(p.front[0]), cost: math.Inf(1), alone: math.Inf(1)}
		some := false
		for _, b := range p.front {
			if packing.Fits(r.catalog.RoomOf(b), u.need, 1) == 0 || !r.affordable(b) {
				continue
			}
			some = true
			if use, ok := r.catalog.PaidFrom(b); ok {
				r.countPaid(u, c, b, use)
				continue
			}
			c.cost, c.alone = min(c.cost, r.shareCost(u, b)), min(c.alone, r.catalog.Candidates[b].Price)
		}
		if some {
			out = append(out, c)
		}
	}
	r.weigh(out)
	return out
}

// openBuckets returns domain buckets of idle nodes that admit no pod of the batch yet, but may do so once other pods have been assigned to other
// domains. For pods in these buckets nothing is bought: they are placed in the next round. Nodes on which pods run are left out: such a pod has to
// be bound after other pods, which other changes easily prevent, and that risk is worth taking only for nodes that would be wasted otherwise.
func (r *run) openBuckets(u *podBatch) []*domainBucket {
	if r.buyAll {
		return nil
	}
	var out []*domainBucket
	for _, p := range u.refusing {
		c := &domainBucket{site: r.siteIfPlaced(p.nodes[0]), node: p.nodes[0]}
		for _, n := range p.nodes {
			c.room += u.RoomOn(n.index, packing.Fits(n.free, u.need, u.left), r)
		}
		out = append(out, c)
	}
	return out
}

// countPaid adds what is left of candidate b's capacity reservation or commitment to the pods that cost nothing in the bucket.
func (r *run) countPaid(u *podBatch, c *domainBucket, b int, use packing.Use) {
	if _, known := c.each[use.Budget]; known {
		return
	}
	if c.each == nil {
		c.each = map[int]paidNode{}
	}
	each := paidNode{pods: 1, amount: max(1, use.Amount)}
	if !r.alone {
		each.pods = packing.Fits(r.catalog.RoomOf(b), u.need, min(u.left, u.Most))
	}
	c.each[use.Budget] = each
	c.paid += each.pods * int(min(int64(u.left), r.unclaimed(use.Budget)/each.amount))
}

// unclaimed returns what is left of a budget that pods which are assigned but not packed yet won't take.
func (r *run) unclaimed(budget int) int64 { return max(0, r.budgets[budget]-r.claimed[budget]) }

// claim records how much of capacity reservations and commitments the pods assigned to a bucket will use, so that other pods don't count on
// it as well.
func (r *run) claim(c *domainBucket) {
	n := c.n
	for _, budget := range slices.Sorted(maps.Keys(c.each)) {
		each := c.each[budget]
		nodes := min(r.unclaimed(budget)/each.amount, int64((n+each.pods-1)/each.pods))
		r.claimed[budget] += nodes * each.amount
		if n -= int(nodes) * each.pods; n <= 0 {
			return
		}
	}
}

// weigh finds out whether the two cost models (nodes shared perfectly, or a node per pod) lead to different choices of buckets, and
// applies the one that this plan uses.
func (r *run) weigh(domainBuckets []*domainBucket) {
	for _, c := range domainBuckets {
		for _, o := range domainBuckets {
			if c.cost < o.cost*(1-1e-9) && o.alone < c.alone*(1-1e-9) {
				r.ambiguous = true
			}
		}
	}
	if r.alone {
		for _, c := range domainBuckets {
			c.cost = c.alone
		}
	}
}

// shareCost returns what a pod costs if its node is shared perfectly: the largest share that it takes of any resource.
func (r *run) shareCost(u *podBatch, b int) float64 {
	share := 1 / float64(u.Most)
	for d, n := range u.need {
		if room := r.catalog.RoomOf(b)[d]; n > 0 && room != packing.Unlimited {
			share = max(share, float64(n)/float64(room))
		}
	}
	return share * r.catalog.Candidates[b].Price
}

// assign chooses domain buckets for pods of the batch, at most as many as the parameter most says, so that spread, affinity and anti-affinity hold
// over all pods that are placed or assigned. Assigned pods are counted in the topology groups; unassume reverts that.
//
// kube-scheduler spreads over the domains that have nodes. Here all domains count in which nodes can be bought. Where maxSkew leaves a choice
// between domains, a pod goes to the cheapest.
func (r *run) assign(u *podBatch, domainBuckets []*domainBucket, most int) {
	for range most {
		lowest := u.lowest(domainBuckets)
		var best *domainBucket
		var bestChoice choice
		for _, c := range domainBuckets {
			if math.IsInf(c.next(), 1) || !u.Allows(c.site) {
				continue
			}
			if x := (choice{even: u.Even(c.site, lowest), cost: c.next(), tally: u.Tally(c.site)}); best == nil || x.better(bestChoice) {
				best, bestChoice = c, x
			}
		}
		if best == nil {
			break
		}
		best.n++
		r.assumed = append(r.assumed, assumption{u, best})
		r.assume(u, best, 1)
	}
	for _, c := range domainBuckets {
		r.claim(c)
	}
}

// choice is what assign compares the buckets by.
type choice struct {
	// even: with one more pod there, no spread constraint exceeds its maxSkew.
	even  bool
	cost  float64        // of one more pod there, in $/h
	tally topology.Tally // number of pods there that spread constraints count
}

func (a choice) better(b choice) bool {
	if a.even != b.even {
		return a.even
	}
	if !a.even && a.tally.Own != b.tally.Own {
		return a.tally.Own < b.tally.Own
	}
	if a.cost < b.cost*(1-1e-9) || b.cost < a.cost*(1-1e-9) {
		return a.cost < b.cost
	}
	return a.tally.Less(b.tally)
}

// lowest returns, for each of the batch's own spread constraints, the least count among the domains whose buckets can take a pod.
func (u *podBatch) lowest(domainBuckets []*domainBucket) []int {
	out := make([]int, len(u.Spreads))
	for i, g := range u.Spreads {
		out[i] = math.MaxInt
		for _, c := range domainBuckets {
			if c.node != nil && c.n >= c.room {
				continue
			}
			if d, ok := c.site.Of(g); ok {
				out[i] = min(out[i], g.Counts[d])
			}
		}
	}
	return out
}

// assumption is a pod counted in a bucket before its node is planned.
type assumption struct {
	podBatch *podBatch
	in       *domainBucket
}

func (r *run) assume(u *podBatch, c *domainBucket, n int) {
	for _, g := range u.Member {
		if g.Host || g.Filter != nil && !r.countsIn(c, g) {
			continue
		}
		if d, ok := c.site.Of(g); ok {
			g.Add(d, n)
			if g.Filter != nil && c.node == nil {
				if g.Nodes[d] += n; g.Nodes[d] == 0 {
					delete(g.Nodes, d)
				}
			}
		}
	}
	for i := range u.All {
		o := &u.All[i]
		if o.Group.Host {
			continue
		}
		d, ok := c.site.Of(o.Group)
		if !ok {
			continue
		}
		if o.Excludes() {
			o.Group.Owners[d] += n
		}
	}
}

// countsIn reports whether a spread group considers the bucket's nodes.
func (r *run) countsIn(c *domainBucket, g *topology.Group) bool {
	if c.node != nil {
		return r.counts(g, c.node)
	}
	return r.countsCandidate(g, c.first, func(key string) (string, bool) { return r.catalog.Label(c.first, key) })
}

// unassume takes the pods that assign has counted in topology groups out of them again: place counts them on their nodes.
func (r *run) unassume() {
	for _, a := range r.assumed {
		r.assume(a.podBatch, a.in, -1)
	}
	r.assumed = r.assumed[:0]
}
