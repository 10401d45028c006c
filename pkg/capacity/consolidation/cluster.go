package consolidation

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// cluster is a view in numbers, and what a plan has changed in it so far.
type cluster struct {
	o      *Options
	kinds  *kinds
	market *market
	// coverage says, as the view has it, which nodes are paid by commitments such as Savings Plans; nil: there are no commitments.
	coverage *capacity.Coverage
	// nodes are the candidates, in their order, then the view's other nodes, then the new nodes of the plan. existing is the number of
	// those that are not new.
	nodes    []node
	existing int
	// mean is what a pod of a pool costs on average, in $/h.
	mean map[string]float64
	// refused are classes, each with an existing node on which kube-scheduler's filters have refused a placement of its pods.
	refused map[refusal]bool
	// balancedBy are the indexes of cpu and memory in kinds.dims: pods are placed so that both are used evenly; -1: no pod requests it.
	balancedBy [2]int
	// admitted says, by kind.asks and by index of an existing node, whether its taints and labels admit such pods: 1: yes, -1: no, 0 or no slice: not
	// known yet.
	admitted [][]int8
	counted  []share // memory that candidate reuses
	// zones counts the nodes of pools that balance zones, by zone, as the moves that are priced so far leave them; nil: no pool does.
	zones *zones
}

type refusal struct {
	class capacity.ClassKey
	node  string
}

// node is a node in a plan.
type node struct {
	view *capacity.Node // nil: it is new
	c    *Candidate     // nil: it is new or not managed
	// price is what keeping it costs, in $/h; 0: unknown, or not managed.
	price float64
	// free is what the plan's pods leave free, size what the node can hold, both by dimension (kinds.dims).
	free []int64
	size []int64
	// pods are the reschedulable pods that are on the node after the moves planned so far; own are those that are there now. Both are sorted by kind.
	pods, own []share
	// from are those of pods that are on another node now.
	from []arrival
	// disruption is what ending the node would disrupt: 1 for itself, and the disruption costs of pods. podCost is the sum of the disruption costs of own.
	disruption, podCost float64
	offer               int // of a new node: index in market.offers of the offering that it is priced as; -1: it exists
	types               int // of a new spot node: as how many instance types it must be possible to launch it; 0: any number
	// gone: the plan empties it. closed: it gets no pods.
	gone, closed bool
	parent       int32 // the next node on the way to the root of the set of nodes that are one move (joins.go); -1: it is in no such set
	joined       int32 // at the root of a set: how many existing nodes the set has
}

// arrival is n pods of a kind that the plan brings to a node; origin is the index of the node where they are now.
type arrival struct {
	kind, origin, n int32
}

func newCluster(view *capacity.View, candidates []Candidate, o *Options, mem *memory) *cluster {
	ks, mentions := newKinds(candidates, o.Prices.IgnorePreferences)
	c := &cluster{o: o, kinds: ks, refused: map[refusal]bool{}}
	for _, f := range o.Prices.Forbidden {
		if f.Node != "" {
			c.refused[refusal{f.Class, f.Node}] = true
		}
	}
	index := make(map[string]int, len(view.Nodes))
	for i, n := range view.Nodes {
		index[n.Name] = i
	}
	taken := make([]bool, len(view.Nodes))
	c.nodes = make([]node, 0, len(view.Nodes)+len(candidates)/4)
	for i := range candidates {
		x := &candidates[i]
		at, ok := index[x.Node]
		if !ok || taken[at] {
			c.nodes = append(c.nodes, node{c: x, view: &capacity.Node{Name: x.Node}, closed: true, gone: true, disruption: 1})
			continue
		}
		taken[at] = true
		c.nodes = append(c.nodes, c.candidate(x, view.Nodes[at]))
	}
	for i, n := range view.Nodes {
		if !taken[i] {
			c.nodes = append(c.nodes, node{view: n, closed: n.Closed})
		}
	}
	c.existing = len(c.nodes)
	ks.separate()
	c.coverage = view.Coverage
	c.market = newMarket(view, ks, mentions, o, mem, c.once())
	c.zones = zonesOf(view)
	c.measure()
	return c
}

// once returns what commitments will cover when the nodes that have to go have left.
func (c *cluster) once() *capacity.Coverage {
	var leaving []string
	for i := range c.nodes {
		if n := &c.nodes[i]; n.c != nil && !n.gone && n.c.Forced != "" && c.coverage.Of(n.view.Name) != "" {
			leaving = append(leaving, n.view.Name)
		}
	}
	if len(leaving) == 0 {
		return c.coverage
	}
	return c.coverage.Without(leaving)
}

// list returns what a node would cost, in $/h, if no commitment paid for it.
func (c *cluster) list(n *node) float64 {
	if c.coverage == nil {
		return n.price
	}
	return max(n.price, c.coverage.Nodes[n.view.Name].List)
}

// candidate returns a candidate's node, and counts its pods by kind.
func (c *cluster) candidate(x *Candidate, n *capacity.Node) node {
	out := node{c: x, view: n, price: x.Price, closed: n.Closed || x.Ending || x.Forced != "", podCost: x.podCost()}
	out.disruption = 1 + out.podCost
	if !known(x.Price) {
		out.price = 0
	}
	own, i := c.counted[:0], 0
	for j := range x.Pods {
		p := &x.Pods[j]
		k := c.kinds.of(p, n, x)
		if i >= len(own) || own[i].kind != k {
			found := false
			if i, found = position(own, k); !found {
				own = slices.Insert(own, i, share{k, 0})
			}
		}
		own[i].n++
		c.kinds.all[k].count++
		c.kinds.all[k].weight += max(0, p.Cost)
	}
	c.counted = own
	shares := append(make([]share, 0, 2*len(own)+4), own...) // with space for more: the plan puts pods of other kinds on most nodes
	out.own, out.pods = shares[:len(own):len(own)], append(shares[len(own):], own...)
	return out
}

// known reports whether a price is known.
func known(price float64) bool { return price >= 0 && !math.IsInf(price, 1) }

// measure sets what depends on all kinds: what nodes have, by dimension, the mean price of a pool's pods, and the mean disruption cost of a kind's.
func (c *cluster) measure() {
	for i, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		c.balancedBy[i] = slices.Index(c.kinds.dims.Resources, name)
	}
	c.mean = map[string]float64{}
	pods := map[string]int{}
	length := c.kinds.dims.Len()
	numbers := make([]int64, 0, 2*length*len(c.nodes)) // side by side, since trials read both of one node after another
	vector := func(amounts capacity.Resources, volumes map[string]int64) []int64 {
		at := len(numbers)
		numbers = c.kinds.dims.AppendRoom(numbers, amounts, volumes)
		return numbers[at:len(numbers):len(numbers)]
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		n.parent, n.joined, n.offer = int32(i), 1, -1
		n.free = vector(n.view.Free, n.view.VolumesFree)
		n.size = vector(n.view.Allocatable, nil)
		if n.c != nil && known(n.c.Price) {
			c.mean[n.c.Pool] += c.list(n)
			pods[n.c.Pool] += len(n.c.Pods)
		}
	}
	for pool := range c.mean {
		c.mean[pool] /= float64(max(1, pods[pool]))
	}
	for i := range c.kinds.all {
		if k := &c.kinds.all[i]; k.count > 0 {
			k.weight /= float64(k.count)
		}
	}
	c.admitted = make([][]int8, len(c.kinds.asks))
}

// worth returns what the pods on a node are worth, in $/h: what they would cost on the cheapest nodes for all pods (market.value).
func (c *cluster) worth(n *node) float64 {
	sum := 0.0
	for _, s := range n.pods {
		sum += c.kinds.all[s.kind].value * float64(s.n)
	}
	return sum
}

// waste returns the part of a node's price that its pods aren't worth.
func (c *cluster) waste(n *node) float64 { return n.price - c.worth(n) }

// admits reports whether pods of a kind may be put on a node, apart from capacity and other pods.
func (c *cluster) admits(kind int32, at int32) bool {
	k, n := &c.kinds.all[kind], &c.nodes[at]
	if n.closed || n.gone {
		return false
	}
	if n.view == nil {
		return k.may.Has(n.offer)
	}
	if len(c.refused) > 0 && c.refused[refusal{k.class.Key, n.view.Name}] {
		return false
	}
	if k.least > 0 {
		return c.kinds.admits(k, n.view)
	}
	known := c.admitted[k.asks]
	if known == nil {
		known = make([]int8, c.existing)
		c.admitted[k.asks] = known
	}
	if known[at] == 0 {
		known[at] = -1
		if c.kinds.admits(k, n.view) {
			known[at] = 1
		}
	}
	return known[at] > 0
}

// besides returns how many pods of a kind, at most most, may join those on a node, apart from capacity.
func (c *cluster) besides(kind int32, n *node, most int) int {
	k := &c.kinds.all[kind]
	if !k.special() {
		return most
	}
	have := 0
	for _, s := range n.pods {
		if s.kind == kind {
			have = int(s.n)
		} else if slices.Contains(k.apart, s.kind) {
			return 0
		}
	}
	if len(k.class.HostPorts) > 0 && n.view != nil && have == 0 {
		for _, p := range n.view.Pods {
			if capacity.PortsConflict(k.class.HostPorts, capacity.HostPorts(p)) {
				return 0
			}
		}
	}
	return min(most, max(0, k.most-have))
}

// put adds n pods of a kind to a node, or takes -n away.
func (c *cluster) put(at, kind int32, n int32) {
	x, k := &c.nodes[at], &c.kinds.all[kind]
	for d, v := range k.need {
		if x.free[d] != math.MaxInt64 {
			x.free[d] -= v * int64(n)
		}
	}
	x.disruption += k.weight * float64(n)
	i, found := position(x.pods, kind)
	switch {
	case !found:
		x.pods = slices.Insert(x.pods, i, share{kind, n})
	case x.pods[i].n+n == 0:
		x.pods = slices.Delete(x.pods, i, i+1)
	default:
		x.pods[i].n += n
	}
}

// position returns the place of a kind among pods, and whether it is there.
func position(pods []share, kind int32) (i int, found bool) {
	for i < len(pods) && pods[i].kind < kind {
		i++
	}
	return i, i < len(pods) && pods[i].kind == kind
}

// fits reports whether one pod fits the capacity.
func fits(free, need []int64) bool {
	for d, v := range need {
		if v > free[d] && v > 0 {
			return false
		}
	}
	return true
}

// shortage returns the resource of which most of the nodes that admit pods of a kind have less free than one pod needs; empty: none.
func (c *cluster) shortage(kind int32) string {
	need := c.kinds.all[kind].need
	short := make([]int, len(need))
	for at := range c.nodes {
		if !c.admits(kind, int32(at)) {
			continue
		}
		for d, v := range need {
			if v > c.nodes[at].free[d] {
				short[d]++
			}
		}
	}
	worst := 0
	for d, n := range short {
		if n > short[worst] {
			worst = d
		}
	}
	if len(short) == 0 || short[worst] == 0 {
		return ""
	}
	return c.kinds.dims.Name(worst)
}

// policy returns the policy of a candidate's pool.
func (c *cluster) policy(x *Candidate) (Policy, bool) {
	p, ok := c.o.Pools[x.Pool]
	if p.Consolidate == "" {
		p.Consolidate = WhenEmptyOrUnderutilized
	}
	return p, ok
}
