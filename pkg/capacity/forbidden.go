package capacity

import (
	"fmt"
	"slices"
	"strings"
)

// Forbidden rules out a class on a node, or on every new node of a pool when Node is empty.
type Forbidden struct {
	Class ClassKey
	Node  string
	Pool  string
	// With Pool: only there; empty: every one.
	Zone, CapacityType string
	// Plugin that refused and its reason, as kube-scheduler words it.
	Plugin, Reason string
	// Paused: not a filter refuses the pods there, the spending guard does.
	Paused bool
}

// rules says whether it is about an offer of its pool.
func (f *Forbidden) rules(o *Offer) bool {
	return (f.Zone == "" || f.Zone == o.Zone) && (f.CapacityType == "" || f.CapacityType == o.CapacityType)
}

func (f *Forbidden) text() string {
	if f.Plugin == "" {
		return f.Reason
	}
	return f.Plugin + ": " + f.Reason
}

// forbidden is what is ruled out on new nodes, by class and pool. There may be hundreds of pools, each with a few offers ruled out.
type forbidden map[ClassKey]map[string][]*Forbidden

func forbiddenOf(all []Forbidden) forbidden {
	out := forbidden{}
	for i := range all {
		f := &all[i]
		if f.Node != "" {
			continue
		}
		if out[f.Class] == nil {
			out[f.Class] = map[string][]*Forbidden{}
		}
		out[f.Class][f.Pool] = append(out[f.Class][f.Pool], f)
	}
	return out
}

// count is how much of what could be built has been ruled out for a class.
func (f forbidden) count(class ClassKey) int {
	n := 0
	for _, of := range f[class] {
		n += len(of)
	}
	return n
}

// forbid takes what is ruled out for the unit from its bins.
func (r *run) forbid(u *unit) {
	of := r.forbidden[u.Key]
	if len(of) == 0 {
		return
	}
	for _, p := range r.catalog.pools {
		for _, f := range of[p.Name] {
			for _, v := range p.labelChoices {
				for b := v.first; b < v.last; b++ {
					if f.rules(&r.catalog.bins[b].offer) {
						u.bins.Clear(b)
					}
				}
			}
		}
	}
}

// maxPoolsNamed is how many pools the text about refusals by filters names.
const maxPoolsNamed = 3

// byFilters says what the real filters have refused: by is what they said first, pools are those in which nothing is left. all: those
// are all the pools that could build a node for the pod.
func (r *run) byFilters(u *unit, by *Forbidden, pools []string, all bool) string {
	var plugins []string
	for _, p := range r.catalog.pools {
		for _, f := range r.forbidden[u.Key][p.Name] {
			if f.Plugin != "" && !slices.Contains(plugins, f.Plugin) {
				plugins = append(plugins, f.Plugin)
			}
		}
	}
	who, verb := "filters", "refuse"
	switch len(plugins) {
	case 0:
	case 1:
		who, verb = plugins[0]+" filter", "refuses"
	default:
		who = strings.Join(plugins, ", ") + " filters"
	}
	tried := r.forbidden.count(u.Key)
	if all {
		return fmt.Sprintf("the scheduler's %s %s the pod on every node that could be built for it (%d tried, one for each node pool, zone and capacity type): %s", who, verb, tried, by.Reason)
	}
	named := strings.Join(pools[:min(len(pools), maxPoolsNamed)], ", ")
	if more := len(pools) - maxPoolsNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s: the scheduler's %s %s the pod on the nodes that were tried (%d, one for each node pool, zone and capacity type): %s", named, who, verb, tried, by.Reason)
}
