package topology

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// Groups are the topology groups of the demand and of existing pods.
type Groups struct {
	Groups []*Group
	byID   map[string]*Group // by what they count: key, selector, filter
	// domains numbers the values of each topology key: by key, then value.
	domains map[string]map[string]int
	// keys are the topology keys of the groups, except the host name.
	keys []string
	// Eligible are the existing nodes that a spread constraint considers, by its group. Other groups count all nodes.
	Eligible map[*Group]packing.Bits
	// Changes is the number of times that constraints came into or went out of force.
	Changes int
	// Opening are the groups that a new node changes before any pod is placed on it.
	Opening []*Group
	// counters are functions that know which of the groups without a selector (Group.byKind) count a pod: they call count with each.
	counters []func(p *corev1.Pod, count func(*Group))
}

// New makes the groups of the batches' constraints and of existing pods' anti-affinity terms, and counts the pods on existing nodes.
func New(nodes []*capacity.Node, daemons []*capacity.DaemonSet, batches []*Batch, names capacity.NamespaceLabels) *Groups {
	t := &Groups{byID: map[string]*Group{}, domains: map[string]map[string]int{}, Eligible: map[*Group]packing.Bits{}}
	for _, constraints := range kinds {
		constraints(t, batches)
	}
	t.count(nodes, batches, names)
	t.countDaemons(daemons, batches, names)
	t.join(batches, names)
	t.number()
	for _, g := range t.Groups {
		g.save()
	}
	return t
}

// Restore sets all counts to what they were before planning.
func (t *Groups) Restore() {
	for _, g := range t.Groups {
		g.restore()
	}
}

// ForgetDomains reverts what Group.LearnDomains has set.
func (t *Groups) ForgetDomains() {
	for _, g := range t.Groups {
		clear(g.forced)
		g.HostFromZero = false
	}
}

func (t *Groups) group(id string, terms ...*capacity.PodTerm) *Group {
	g, ok := t.byID[id]
	if !ok {
		g = newGroup(terms...)
		t.byID[id] = g
		t.Groups = append(t.Groups, g)
	}
	return g
}

// domain returns the number of a key's value.
func (t *Groups) domain(key, value string) int {
	values, ok := t.domains[key]
	if !ok {
		values = map[string]int{}
		t.domains[key] = values
	}
	d, ok := values[value]
	if !ok {
		d = len(values)
		values[value] = d
	}
	return d
}

// Counted lists the domains of a group over a label, with the number of pods that count in each.
func (t *Groups) Counted(g *Group) []string {
	var out []string
	values := t.domains[g.Key]
	for _, value := range slices.Sorted(maps.Keys(values)) {
		if d := values[value]; g.Counts[d] > 0 || g.Nodes[d] > 0 || g.forced[d] {
			out = append(out, fmt.Sprintf("%s %d", value, g.Counts[d]))
		}
	}
	return out
}

// join sets which groups each batch is a member of.
func (t *Groups) join(batches []*Batch, names capacity.NamespaceLabels) {
	anti := map[*Group]bool{}
	for _, g := range t.Groups {
		if len(g.Owners)+len(g.Repelling) > 0 {
			anti[g] = true
		}
	}
	for _, u := range batches {
		for _, o := range u.All {
			if o.Excludes() {
				anti[o.Group] = true
			}
		}
	}
	for _, u := range batches {
		for _, g := range t.Groups {
			var in bool
			if g.byKind {
				in = slices.ContainsFunc(u.All, func(o Constraint) bool { return o.Group == g })
			} else {
				in = g.matches(u.Namespace, u.Labels, names)
			}
			if !in {
				continue
			}
			u.Member = append(u.Member, g)
			if anti[g] {
				u.Blocked = append(u.Blocked, g)
			}
			for i := range u.All {
				if u.All[i].Group == g {
					u.All[i].self = true
				}
			}
		}
	}
}
