package planner

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// node is an existing or a planned node, while a plan is made.
type node struct {
	index int            // in run.nodes; also its domain in topology groups over host names
	view  *capacity.Node // nil: a planned node
	// candidate is the index of the offering candidate that a planned node is bought as; it may change while the plan is made. -1: an existing
	// node.
	candidate int
	content   []share // the pods that this plan places on it
	free      []int64 // free capacity, by dimension
	// sure are the topology domains that a planned node will have whichever of its offerings is launched.
	sure topology.Site
	// fixed are the labels that must have the same value whatever is launched.
	fixed []string
	// present holds the topology groups that count this node as a domain (set by register).
	present map[*topology.Group]bool
	gone    bool // it is not bought: no pods are left on it, or no offering can hold them
	// lost: pods were removed from it since its shape was found.
	lost bool
	// shape has the offerings that a planned node may be bought as; nil: they aren't chosen yet.
	shape *shape
	// short says why no set of offerings for these pods satisfies the pool's minValues.
	short string
}

// share is pods of one batch on a node, placed at one level of the batch's preferences.
type share struct {
	podBatch   *podBatch
	level      int
	candidates packing.Bits // the batch's candidates at that level
	n          int          // number of pods
}

func (n *node) planned() bool { return n.view == nil }

// admitsPods reports whether all pods of the node may be on the candidate.
func (n *node) admitsPods(b int) bool {
	for _, s := range n.content {
		if !s.candidates.Has(b) {
			return false
		}
	}
	return true
}

// label returns a label of the node. A planned node has only those that are certain: those in fixed while the plan is made, and once its
// shape is known those that all its offerings have in common.
func (r *run) label(n *node, key string) (string, bool) {
	switch {
	case !n.planned():
		return n.view.Label(key)
	case n.shape != nil:
		v, ok := n.shape.template.Labels[key]
		return v, ok
	case slices.Contains(n.fixed, key) || key == capacity.LabelCapacityType:
		return r.catalog.Label(n.candidate, key)
	}
	b := &r.catalog.Candidates[n.candidate]
	v, ok := r.catalog.Pools[b.Pool].LabelChoices[b.LabelChoice].Labels[key]
	return v, ok
}

// counts reports whether a spread group considers the node.
func (r *run) counts(g *topology.Group, n *node) bool {
	if !n.planned() {
		return r.topo.Eligible[g].Has(n.index)
	}
	return r.countsCandidate(g, n.candidate, func(key string) (string, bool) { return r.label(n, key) })
}

// Least returns the least count on any node that a spread group over host names considers. While nodes are being planned a new node
// may always be added, with a count of zero; when the placements are put in order all nodes are known.
func (r *run) Least(g *topology.Group, minDomains int) int {
	if !r.ordering && (g.HostFromZero || len(r.nodes) > r.existing) {
		return 0
	}
	return g.LeastNode(minDomains, func(each func(node int)) {
		for _, n := range r.nodes[r.existing:] {
			if !n.gone && r.counts(g, n) {
				each(n.index)
			}
		}
	})
}

// countsCandidate reports whether a spread group will consider a node bought as candidate b with these labels.
func (r *run) countsCandidate(g *topology.Group, b int, label func(key string) (string, bool)) bool {
	return g.Filter.Allows(r.catalog.Pools[r.catalog.Candidates[b].Pool].Taints, label)
}

// place places k pods of a batch on a node.
func (r *run) place(u *podBatch, n *node, k int) {
	packing.Take(n.free, u.need, k)
	at := -1
	for i := range n.content {
		if n.content[i].podBatch == u && n.content[i].level == u.level {
			at = i
		}
	}
	if at < 0 {
		n.content = append(n.content, share{podBatch: u, level: u.level, candidates: u.candidates})
		at = len(n.content) - 1
		if n.planned() {
			more := false
			for _, key := range r.keysNow(u) {
				if !slices.Contains(n.fixed, key) {
					n.fixed, more = append(n.fixed, key), true
				}
			}
			if more {
				r.ascertain(n)
				r.register(n)
			}
		}
	}
	n.content[at].n += k
	if last := len(u.placed) - 1; last >= 0 && u.placed[last].node == n {
		u.placed[last].n += k
	} else {
		u.placed = append(u.placed, placed{n, k})
	}
	u.left -= k
	r.tally(u, n, k)
}

// tally adds k pods of a batch on a node to the groups that count them or that belong to their anti-affinity terms.
func (r *run) tally(u *podBatch, n *node, k int) {
	for _, g := range u.Member {
		if g.Filter != nil && !r.counts(g, n) {
			continue
		}
		if d, ok := r.domain(n, g); ok {
			g.Add(d, k)
		}
	}
	for i := range u.All {
		if o := &u.All[i]; o.Excludes() {
			if d, ok := r.domain(n, o.Group); ok {
				o.Group.Owners[d] += k
			}
		}
	}
}

// register enters a new node in the topology groups that change when a node appears: for a spread over a label its domain then exists, and
// its DaemonSet pods are counted. It skips groups whose node filter excludes the node, as far as its labels are certain.
func (r *run) register(n *node) {
	for _, g := range r.topo.Opening {
		if n.present[g] {
			continue
		}
		d, ok := r.domain(n, g)
		if !ok {
			continue
		}
		if g.Filter != nil && !r.counts(g, n) {
			continue // place calls register again when more labels are certain
		}
		if n.present == nil {
			n.present = map[*topology.Group]bool{}
		}
		n.present[g] = true
		if k := r.daemons.Among(g.Repelling, n.candidate); k > 0 {
			g.Owners[d] += k
		}
		if g.Filter != nil && !g.Host {
			g.Nodes[d]++
		}
		if k := r.daemons.Among(g.Daemons, n.candidate); k > 0 {
			g.Add(d, k)
		}
	}
}

// open adds a planned node that is bought as candidate b.
func (r *run) open(b int) *node {
	n := &node{index: len(r.nodes), candidate: b}
	n.free = append(n.free, r.catalog.RoomOf(b)...)
	r.nodes = append(r.nodes, n)
	for _, use := range r.catalog.Uses(b) {
		r.budgets[use.Budget] -= use.Amount
	}
	r.ascertain(n)
	r.register(n)
	return n
}

// siteBought returns the topology domains of a node bought as candidate b.
func (r *run) siteBought(b int) topology.Site {
	if r.binSites == nil {
		r.binSites = make([]topology.Site, len(r.catalog.Candidates))
	}
	if r.binSites[b] == nil {
		r.binSites[b] = r.topo.Site(func(key string) (string, bool) { return r.catalog.Label(b, key) })
	}
	return r.binSites[b]
}

// siteIfPlaced returns the topology domains that a node would have once a pod that depends on them is placed there.
func (r *run) siteIfPlaced(n *node) topology.Site {
	if n.planned() {
		return r.siteBought(n.candidate)
	}
	return r.nodeSites[n.index]
}

// ascertain sets the domains that a planned node certainly has by now.
func (r *run) ascertain(n *node) {
	n.sure = r.topo.Site(func(key string) (string, bool) { return r.label(n, key) })
}

// domain returns the node's domain in a group, as far as it is certain.
func (r *run) domain(n *node, g *topology.Group) (int, bool) {
	switch {
	case g.Host:
		return n.index, true
	case n.planned():
		return n.sure.Of(g)
	}
	return r.nodeSites[n.index].Of(g)
}
