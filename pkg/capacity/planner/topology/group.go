package topology

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Group is a topology group: it counts the pods that a selector matches, by the domains of a topology key. Host ports are groups, too:
// the pods that use a port, by node.
type Group struct {
	Key  string
	Host bool // the domains are nodes
	slot int  // index in Groups.keys and in a Site; not for host names
	// selected are the terms that a pod has to match to be counted, all of them.
	selected []podSelector
	// Filter tells which nodes count, for a spread constraint; nil: all nodes that have the key, as for all other constraints.
	Filter *nodeFilter
	// byKind: which pods are counted is decided by the kind of the constraint (Groups.counters), not by a selector.
	byKind bool
	// Daemons are the DaemonSets whose pods are counted, Repelling those whose pods have this anti-affinity term, as indexes in View.DaemonSets.
	Daemons, Repelling []int

	// asked is how many pod batches have a constraint in force that uses the group.
	asked int
	// Counts is the number of matching pods, Owners the number of pods that have this anti-affinity term, by domain.
	Counts, Owners map[int]int
	// Nodes is the number of nodes that count, by domain: these are the domains that a spread constraint considers.
	Nodes  map[int]int
	total  int    // sum of Counts
	lowest lowest // for groups over host names
	// forced are domains that a spread constraint considers although no node is there yet. HostFromZero is the same for nodes: a node that may still
	// be added, with a count of zero, is considered from the start.
	forced       map[int]bool
	HostFromZero bool
	// base is the state before planning.
	base *savedCounts
}

// lowest is the least count on a node, how many nodes have it (0: it isn't known any more), and the number of all nodes that are considered.
type lowest struct{ count, nodes, domains int }

// savedCounts are a group's counts before planning, for the next attempt.
type savedCounts struct {
	counts, owners, nodes map[int]int
	total                 int
}

// nodeFilter tells which nodes a spread constraint considers.
type nodeFilter struct {
	Terms       []capacity.Requirements // nil: any
	taints      bool                    // nodes with taints that tolerations don't tolerate don't count (nodeTaintsPolicy Honor)
	tolerations []corev1.Toleration
	Keys        []string // all of these labels must be present
}

// Allows reports whether the filter counts a node with these taints and labels.
func (f *nodeFilter) Allows(taints []corev1.Taint, label func(key string) (string, bool)) bool {
	for _, key := range f.Keys {
		if _, ok := label(key); !ok && key != capacity.LabelHostname {
			return false
		}
	}
	// A cordoned node counts until it has the unschedulable taint, as in kube-scheduler.
	if f.taints && capacity.Untolerated(f.tolerations, taints) != nil {
		return false
	}
	return capacity.MatchAny(f.Terms, label)
}

// id is equal for equal filters.
func (f *nodeFilter) id() string {
	var b strings.Builder
	for _, term := range f.Terms {
		fmt.Fprint(&b, term.Sorted())
	}
	fmt.Fprint(&b, f.taints, f.tolerations, slices.Sorted(slices.Values(f.Keys)))
	return b.String()
}

// newGroup returns a group over the first term's topology key that counts the pods which match all terms.
func newGroup(terms ...*capacity.PodTerm) *Group {
	key := terms[0].TopologyKey
	g := &Group{Key: key, Host: key == capacity.LabelHostname, Counts: map[int]int{}, Owners: map[int]int{}, Nodes: map[int]int{}, forced: map[int]bool{}}
	for _, t := range terms {
		g.selected = append(g.selected, newPodSelector(t))
	}
	return g
}

// matches reports whether a pod with these labels in the namespace is counted.
func (g *Group) matches(namespace string, podLabels map[string]string, names capacity.NamespaceLabels) bool {
	for i := range g.selected {
		if !g.selected[i].matches(namespace, podLabels, names) {
			return false
		}
	}
	return true
}

// Add adds n pods to a domain's count.
func (g *Group) Add(domain, n int) {
	if g.lowest.nodes > 0 && (n < 0 || g.Counts[domain] == g.lowest.count) {
		g.lowest.nodes-- // The node may be one that the group doesn't consider: then lowest is computed again sooner than necessary.
		if n < 0 {
			g.lowest.nodes = 0
		}
	}
	g.Counts[domain] += n
	g.total += n
}

// least returns the count of the domain with the fewest pods, or 0 if there are fewer domains than minDomains. The domain with is considered even
// if no node is there yet.
func (g *Group) least(minDomains int, with int) int {
	n, domains, hasWith := -1, 0, false
	each := func(d int) {
		domains++
		if c := g.Counts[d]; n < 0 || c < n {
			n = c
		}
		hasWith = hasWith || d == with
	}
	for d := range g.Nodes {
		each(d)
	}
	for d := range g.forced {
		if _, there := g.Nodes[d]; !there {
			each(d)
		}
	}
	if !hasWith {
		each(with)
	}
	if domains < minDomains {
		return 0
	}
	return max(n, 0)
}

// LeastNode returns the least count on any node that the group considers, or 0 if there are fewer such nodes than minDomains. each calls the function
// that it is given with each planned node that the group considers.
func (g *Group) LeastNode(minDomains int, each func(func(node int))) int {
	if g.lowest.nodes == 0 {
		g.findLowest(each)
	}
	if g.lowest.domains < minDomains {
		return 0
	}
	return max(g.lowest.count, 0)
}

func (g *Group) findLowest(planned func(func(node int))) {
	g.lowest = lowest{count: -1}
	each := func(d int) {
		g.lowest.domains++
		switch c := g.Counts[d]; {
		case g.lowest.count < 0 || c < g.lowest.count:
			g.lowest.count, g.lowest.nodes = c, 1
		case c == g.lowest.count:
			g.lowest.nodes++
		}
	}
	for d := range g.Nodes {
		each(d)
	}
	planned(each)
}

// LearnDomains makes the domains of planned nodes count from the start of the next attempt. It returns false if all of them do already.
func (g *Group) LearnDomains() (learned bool) {
	if g.Host {
		learned, g.HostFromZero = !g.HostFromZero, true
		return learned
	}
	for d := range g.Nodes {
		if _, before := g.base.nodes[d]; !before && !g.forced[d] {
			g.forced[d], learned = true, true
		}
	}
	return learned
}

func (g *Group) save() {
	g.base = &savedCounts{counts: cloneCounts(g.Counts), owners: cloneCounts(g.Owners), nodes: cloneCounts(g.Nodes), total: g.total}
}

func (g *Group) restore() {
	g.Counts, g.Owners, g.Nodes, g.total = cloneCounts(g.base.counts), cloneCounts(g.base.owners), cloneCounts(g.base.nodes), g.base.total
	g.lowest.nodes = 0
}

func cloneCounts(m map[int]int) map[int]int {
	out := make(map[int]int, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Concerns reports whether any constraint uses the group now. None may, if preferences that used it were dropped.
func (g *Group) Concerns() bool { return g.asked > 0 || len(g.Owners)+len(g.Repelling) > 0 }
