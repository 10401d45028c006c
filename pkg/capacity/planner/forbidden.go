package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// forbidden holds what is ruled out on new nodes (Options.Forbidden), by class and name of the pool. There may be hundreds of pools, each with a few
// offerings ruled out.
type forbidden map[capacity.ClassKey]map[string][]*capacity.Forbidden

func forbiddenOf(all []capacity.Forbidden) forbidden {
	out := forbidden{}
	for i := range all {
		f := &all[i]
		if f.Node != "" {
			continue
		}
		if out[f.Class] == nil {
			out[f.Class] = map[string][]*capacity.Forbidden{}
		}
		out[f.Class][f.Pool] = append(out[f.Class][f.Pool], f)
	}
	return out
}

// count returns how many entries (a pool, or a zone and capacity type of one) are ruled out for new nodes of a class.
func (f forbidden) count(class capacity.ClassKey) int {
	n := 0
	for _, of := range f[class] {
		n += len(of)
	}
	return n
}

// forbid removes the candidates that are ruled out for the batch.
func (r *run) forbid(u *podBatch) {
	of := r.forbidden[u.Key]
	if len(of) == 0 {
		return
	}
	for _, p := range r.catalog.Pools {
		for _, f := range of[p.Name] {
			for _, v := range p.LabelChoices {
				for b := v.First; b < v.Last; b++ {
					if f.RulesOut(&r.catalog.Candidates[b].Offer) {
						u.candidates.Clear(b)
					}
				}
			}
		}
	}
}

// avoidDaemons removes the batch's candidates with daemons that its pods must not share a node or domain with, by anti-affinity of either
// side.
func (r *run) avoidDaemons(u *podBatch) {
	avoid := func(g *topology.Group, daemons []int) {
		for _, d := range daemons {
			for b := range r.catalog.Candidates {
				if _, ok := r.catalog.Label(b, g.Key); u.candidates.Has(b) && (ok || g.Host) && r.daemons.Candidates[d].Has(b) {
					u.candidates.Clear(b)
				}
			}
		}
	}
	for i := range u.Owned {
		if o := &u.Owned[i]; o.Effect == topology.Repels {
			avoid(o.Group, o.Group.Daemons)
		}
	}
	for _, g := range u.Blocked {
		avoid(g, g.Repelling)
	}
}

// maxPoolsNamed is how many pools the text about refusals by filters names.
const maxPoolsNamed = 3

// byFilters returns the text for what the real filters refused. by is their first refusal, pools are those in which nothing is left. all:
// no other pool could launch a node for the pod.
func (r *run) byFilters(u *podBatch, by *capacity.Forbidden, pools []string, all bool) string {
	var plugins []string
	for _, p := range r.catalog.Pools {
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
		return fmt.Sprintf("the scheduler's %s %s the pod on every node that could be launched for it (%d tried, one for each node pool, zone and capacity type): %s", who, verb, tried, by.Reason)
	}
	named := strings.Join(pools[:min(len(pools), maxPoolsNamed)], ", ")
	if more := len(pools) - maxPoolsNamed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s: the scheduler's %s %s the pod on the nodes that were tried (%d, one for each node pool, zone and capacity type): %s", named, who, verb, tried, by.Reason)
}
