package planner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// run is the making of one plan: what is derived from the view, and below that what has been decided so far.
type run struct {
	view          *capacity.View
	opts          *capacity.Options
	dims          *catalog.Dims
	podBatches    []*podBatch
	catalog       *catalog.Catalog
	daemons       *catalog.DaemonSets
	topo          *topology.Groups
	allBudgets    []int64   // what is left of limits, capacity reservations and commitments before planning
	existing      int       // number of the view's nodes, which are the first of nodes
	free          [][]int64 // free capacity of the view's nodes before planning, by node and dimension
	forbiddenNode map[forbiddenNode]bool
	forbidden     forbidden
	nodeSites     []topology.Site // topology domains of the view's nodes
	binSites      []topology.Site // topology domains of candidates, filled when needed
	// partsOf and described are caches of parts and describe.
	partsOf   map[string][]*part
	described map[string]*capacity.PlannedNode

	// Learned in earlier attempts.
	excluded   map[string]bool // gangs that are left out
	byPriority bool            // nodes are bought for pods of one priority after the other, because limits don't suffice for all
	// narrowed: balance (even zones) has narrowed nodes to zones. lopsided: balance narrows none any more, because placements had to be taken back.
	narrowed, lopsided bool

	// Decided in this attempt.
	nodes   []*node
	budgets []int64      // what is left of allBudgets
	assumed []assumption // pods that are counted in a domain bucket before their node is planned
	bound   float64      // lower bound for the cost of the new nodes, in $/h
	effort  int          // what is left of Options.Effort
	// claimed is what pods that are assigned but not packed yet will take from capacity reservations and commitments, by budget.
	claimed map[int]int64
	// ordering: all nodes are known, and the placements are being put in order. tookBack: some placements were removed again, because they never
	// became legal or their node has no offering. resumes: planning continues for their pods.
	ordering, tookBack, resumes bool
	// expects: in this round (decide) some pods were assigned to existing nodes that admit them only after other pods are placed (openBuckets). They
	// are placed in the next round. buyAll: the last round placed no pod, so no more pods wait for such nodes: nodes are bought for all.
	expects, buyAll bool

	// alone selects the cost model for zones and other domains. If true, each pod has a node to itself; if false, pods share nodes perfectly.
	// ambiguous: of some pair of domains one is cheaper by one model and the other by the other model.
	alone, ambiguous bool
}

type forbiddenNode struct {
	class capacity.ClassKey
	node  string
}

// newRun returns a run. total is the limit that all pools share; nil: it isn't considered.
func newRun(view *capacity.View, total *capacity.Total, opts *capacity.Options, memory *catalog.Memory) *run {
	r := &run{view: view, opts: opts, dims: catalog.DimsOf(view.Demand), podBatches: podBatchesOf(view.Demand),
		existing: len(view.Nodes), forbiddenNode: map[forbiddenNode]bool{}, forbidden: forbiddenOf(opts.Forbidden), excluded: map[string]bool{},
		described: map[string]*capacity.PlannedNode{}}
	batches, soft := make([]*topology.Batch, len(r.podBatches)), softTaints(view)
	for i, u := range r.podBatches {
		batches[i] = &u.Batch
		u.need = r.dims.Need(u.Class)
		u.fixZone = opts.FixZone[u.Key]
	}
	for _, n := range view.Nodes {
		r.free = append(r.free, r.dims.Room(n.Free, n.VolumesFree))
	}
	for _, f := range opts.Forbidden {
		if f.Node != "" {
			r.forbiddenNode[forbiddenNode{f.Class, f.Node}] = true
		}
	}
	r.topo = topology.New(view.Nodes, view.DaemonSets, batches, view.Namespaces)
	for _, u := range r.podBatches {
		u.findSteps(soft)
	}
	for _, n := range view.Nodes {
		r.nodeSites = append(r.nodeSites, r.topo.Site(n.Label))
	}
	r.catalog = memory.Catalog(view.Pools, catalog.Within{Total: total, Coverage: view.Coverage}, opts, mentioned(r.podBatches, r.topo.Groups))
	r.daemons = r.catalog.AddDaemons(view.DaemonSets, r.dims)
	r.allBudgets = r.catalog.Left()
	return r
}

// softTaints reports whether any pool or node has a PreferNoSchedule taint.
func softTaints(view *capacity.View) bool {
	soft := func(t corev1.Taint) bool { return t.Effect == corev1.TaintEffectPreferNoSchedule }
	return slices.ContainsFunc(view.Pools, func(p *capacity.Pool) bool { return slices.ContainsFunc(p.Taints, soft) }) ||
		slices.ContainsFunc(view.Nodes, func(n *capacity.Node) bool { return slices.ContainsFunc(n.Taints, soft) })
}

// mentioned returns the labels that batches ask for or are counted by.
func mentioned(podBatches []*podBatch, groups []*topology.Group) *catalog.Mentions {
	out := &catalog.Mentions{}
	for _, u := range podBatches {
		out.Add(u.Class)
	}
	for _, g := range groups {
		if !g.Host { // no node that can be bought has its name yet
			out.Count(g.Key)
		}
	}
	return out
}

// reset discards the decisions of the last attempt.
func (r *run) reset() {
	r.nodes, r.budgets, r.assumed, r.bound = nil, slices.Clone(r.allBudgets), nil, 0
	r.ordering, r.tookBack, r.resumes, r.buyAll, r.expects, r.narrowed = false, false, false, false, false, false
	for i, n := range r.view.Nodes {
		r.nodes = append(r.nodes, &node{index: i, view: n, candidate: -1, free: slices.Clone(r.free[i])})
	}
	r.topo.Restore()
	for _, u := range r.podBatches {
		u.left, u.placed, u.unordered, u.level, u.special = len(u.holders), nil, 0, 0, false
		if r.opts.IgnorePreferences {
			u.level = len(u.steps)
		}
		r.relax(u)
	}
}

// resume restores the nodes and counts as they are after the placements in order. Planning goes on from there.
func (r *run) resume(order []binding) {
	r.assumed, r.ordering, r.tookBack, r.resumes, r.buyAll, r.expects = nil, false, false, true, false, false
	r.budgets = slices.Clone(r.allBudgets)
	r.topo.Restore()
	for _, u := range r.podBatches {
		u.placed, u.unordered = nil, 0
		r.relax(u)
	}
	for _, n := range r.nodes[r.existing:] {
		if n.gone {
			continue
		}
		n.shape, n.lost = nil, false
		n.free = r.freeAs(n, n.candidate)
		for _, use := range r.catalog.Uses(n.candidate) {
			r.budgets[use.Budget] -= use.Amount
		}
		clear(n.present)
		r.ascertain(n)
		r.register(n)
	}
	for i, n := range r.nodes[:r.existing] {
		n.free = slices.Clone(r.free[i])
		for _, s := range n.content {
			packing.Take(n.free, s.podBatch.need, s.n)
		}
	}
	for _, b := range order {
		b.podBatch.placed = append(b.podBatch.placed, placed{b.node, b.n})
		r.tally(b.podBatch, b.node, b.n)
	}
}

// relax sets what the batch requires at its level of preferences.
func (r *run) relax(u *podBatch) {
	u.relaxed()
	r.topo.Changes++
	candidates := r.catalog.Matching(&u.asks)
	u.candidates = candidates.Clone()
	if len(u.HostPorts) > 0 {
		u.candidates.AndNot(r.daemons.PortsTaken(u.HostPorts, len(r.catalog.Candidates)))
	}
	r.avoidDaemons(u)
	r.forbid(u)
	for p := range u.banned {
		r.clear(u.candidates, func(b *catalog.Candidate) bool { return b.Pool == p.Index })
	}
	r.offer(u)
}

func (r *run) clear(candidates packing.Bits, which func(*catalog.Candidate) bool) {
	for b := range r.catalog.Candidates {
		if which(&r.catalog.Candidates[b]) {
			candidates.Clear(b)
		}
	}
}

// decide places all pods for which it finds capacity, and drops preferences while that helps.
func (r *run) decide() {
	for {
		before := r.waiting()
		for _, u := range r.podBatches {
			if r.active(u) {
				r.fillOpen(u)
			}
		}
		for tier := range r.catalog.Tiers {
			for i, batch := range r.batches() {
				for _, u := range batch {
					if i > 0 && u.left > 0 {
						r.fillOpen(u)
					}
				}
				r.buy(batch, tier)
			}
		}
		left := r.waiting()
		if left == 0 {
			return
		}
		// Pods that were left for existing nodes (expects) wait for other pods. If those can't be placed, nodes are bought for all.
		stuck := left == before
		if r.buyAll, r.expects = stuck && r.expects, false; r.buyAll {
			continue
		}
		if stuck && !r.giveUp() {
			return
		}
	}
}

func (r *run) active(u *podBatch) bool {
	return u.left > 0 && (u.gang == nil || !r.excluded[u.gang.Key])
}

func (r *run) waiting() int {
	n := 0
	for _, u := range r.podBatches {
		if r.active(u) {
			n += u.left
		}
	}
	return n
}

// batches returns the pod batches to be bought for together: all, or those of each priority if pool limits don't suffice for all.
func (r *run) batches() [][]*podBatch {
	var out [][]*podBatch
	for _, u := range r.podBatches {
		if !r.active(u) {
			continue
		}
		last := len(out) - 1
		if last < 0 || r.byPriority && out[last][0].Priority != u.Priority {
			out = append(out, nil)
			last++
		}
		out[last] = append(out[last], u)
	}
	return out
}

// giveUp makes each batch with pods left drop one preference or, if it has none left, use special hardware.
func (r *run) giveUp() bool {
	some := false
	for _, u := range r.podBatches {
		switch {
		case !r.active(u):
		case u.level < len(u.steps):
			u.level++
			r.relax(u)
			some = true
		case r.takeSpecial(u):
			some = true
		}
	}
	return some
}
