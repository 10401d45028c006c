package planner

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// topology holds the topology groups of the demand and of existing pods.
type topology struct {
	groups []*group
	byID   map[string]*group
	// domains numbers the values of each key.
	domains map[string]map[string]int
	// keys are the topology keys of the groups, except the host name.
	keys []string
	// eligible are the existing nodes that count, by group; missing: all.
	eligible map[*group]packing.Bits
	// changes is the number of times that constraints came into or went out of force.
	changes int
	// opening are the groups that a new node changes before any pod is placed on it.
	opening []*group
	// counters tell in which of their groups an existing pod counts, for groups without a selector (group.byKind).
	counters []func(p *corev1.Pod, count func(*group))
}

func newTopology() *topology {
	return &topology{byID: map[string]*group{}, domains: map[string]map[string]int{}, eligible: map[*group]packing.Bits{}}
}

func (t *topology) group(id string, term *capacity.PodTerm) *group {
	g, ok := t.byID[id]
	if !ok {
		g = newGroup(id, term.TopologyKey, term)
		t.byID[id] = g
		t.groups = append(t.groups, g)
	}
	return g
}

// domain returns the number of a key's value.
func (t *topology) domain(key, value string) int {
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

// constrain makes the groups of the batches' own constraints.
func (t *topology) constrain(batches []*batch) {
	for _, constraints := range kinds {
		constraints(t, batches)
	}
}

// join sets which groups each batch is a member of.
func (t *topology) join(batches []*batch, names capacity.NamespaceLabels) {
	anti := map[*group]bool{}
	for _, g := range t.groups {
		if len(g.owners)+len(g.repelling) > 0 {
			anti[g] = true
		}
	}
	for _, u := range batches {
		for _, o := range u.all {
			if o.excludes() {
				anti[o.group] = true
			}
		}
	}
	for _, u := range batches {
		for _, g := range t.groups {
			var in bool
			if g.byKind {
				in = slices.ContainsFunc(u.all, func(o constraint) bool { return o.group == g })
			} else {
				in = g.matches(u.Namespace, u.Labels, names)
			}
			if !in {
				continue
			}
			u.member = append(u.member, g)
			if anti[g] {
				u.blocked = append(u.blocked, g)
			}
			for i := range u.all {
				if u.all[i].group == g {
					u.all[i].self = true
				}
			}
		}
	}
}
