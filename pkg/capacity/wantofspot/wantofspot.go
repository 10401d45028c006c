// Package wantofspot finds out which nodes are bought on demand only because the spot capacity that would serve their pods is unavailable. It looks
// at nothing but values, and needn't be exact: whether such a node can return to spot capacity is planned like any other move.
package wantofspot

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Of returns the IDs of the planned nodes that are bought on demand although a pool of at least the same weight offers spot capacity that would be
// cheaper and that serves their pods, but is unavailable now.
func Of(plan *capacity.Plan, pools []*capacity.Pool) map[string]bool {
	classes := map[string]map[*capacity.Class]bool{} // by node
	for i := range plan.Placements {
		pl := &plan.Placements[i]
		if classes[pl.Node] == nil {
			classes[pl.Node] = map[*capacity.Class]bool{}
		}
		classes[pl.Node][pl.Class] = true
	}
	out := map[string]bool{}
	for _, n := range plan.Nodes {
		if n.CapacityType != capacity.CapacityTypeOnDemand || len(classes[n.ID]) == 0 {
			continue
		}
		for _, p := range pools {
			if p.Replicas == nil && p.Unready == "" && p.Weight >= n.Pool.Weight && wants(n, p, classes[n.ID]) {
				out[n.ID] = true
				break
			}
		}
	}
	return out
}

// wants reports whether a pool offers spot capacity for a node that would be cheaper and serve its pods, but is unavailable now.
func wants(n *capacity.PlannedNode, p *capacity.Pool, classes map[*capacity.Class]bool) bool {
	for class := range classes {
		if !p.Serves(class.Scheduler()) || capacity.Untolerated(class.Tolerations, p.Taints) != nil {
			return false
		}
	}
	for _, typ := range p.Types {
		if !n.Requests.Fits(typ.Allocatable) {
			continue
		}
		for i := range typ.Offers {
			o := &typ.Offers[i]
			if o.CapacityType == capacity.CapacityTypeSpot && !o.Available && o.Price < n.Price && serves(p, typ, o, classes) {
				return true
			}
		}
	}
	return false
}

// serves reports whether a pool may launch an offering, and all of the classes may be on such a node.
func serves(p *capacity.Pool, typ *capacity.InstanceType, o *capacity.Offer, classes map[*capacity.Class]bool) bool {
	label := func(key string) (string, bool) {
		if v, ok := o.Label(key); ok {
			return v, true
		}
		if v, ok := typ.Labels[key]; ok {
			return v, true
		}
		if v, ok := p.Labels[key]; ok {
			return v, true
		}
		return p.Requirements[key].Single()
	}
	for key, r := range p.Requirements {
		if v, ok := label(key); ok && !r.Has(v) {
			return false
		}
	}
	for class := range classes {
		if !capacity.MatchAny(class.Terms, label) {
			return false
		}
	}
	return true
}
