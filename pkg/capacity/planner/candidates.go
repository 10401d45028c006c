package planner

import (
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Candidates returns the nodes that could be bought for one pod of the class: for each pool, zone and capacity type that Options don't
// rule out, the node that a plan would buy. It ignores constraints on other pods, limits, commitments and other nodes, and drops preferences. The IDs
// of the nodes that it returns differ from each other.
func (p *Planner) Candidates(view *capacity.View, class *capacity.Class, opts capacity.Options) []*capacity.PlannedNode {
	alone := *class
	alone.Spread, alone.Affinity, alone.AntiAffinity, alone.PreferredAffinity, alone.PreferredAntiAffinity = nil, nil, nil, nil, nil
	opts.IgnorePreferences, opts.Effort = true, 0
	opts.FixZone = map[capacity.ClassKey]bool{class.Key: true}
	r := newRun(&capacity.View{Pools: view.Pools, DaemonSets: view.DaemonSets, Namespaces: view.Namespaces,
		Demand: []capacity.Demand{{Class: &alone, Pods: []capacity.PodRef{{}}}}}, nil, &opts, &p.memory)
	r.reset()
	u := r.podBatches[0]
	type place struct {
		pool               int
		zone, capacityType string
	}
	// The cheapest candidate of each place.
	best := map[place]int{}
	var order []place
	for b := range r.catalog.Candidates {
		x := &r.catalog.Candidates[b]
		if !u.offered.Has(b) || !roomFor(r.catalog.RoomOf(b), u.need) {
			continue
		}
		at := place{x.Pool, x.Offer.Zone, x.Offer.CapacityType}
		other, known := best[at]
		if !known {
			order = append(order, at)
		}
		if !known || x.Price < r.catalog.Candidates[other].Price {
			best[at] = b
		}
	}
	var out []*capacity.PlannedNode
	for _, at := range order {
		n := r.open(best[at])
		r.place(u, n, 1)
		s := r.shape(n, false)
		if len(s.candidates) == 0 {
			continue
		}
		t := s.template
		t.ID = fmt.Sprintf("candidate/%d", len(out)+1)
		out = append(out, &t)
	}
	return out
}

func roomFor(room, need []int64) bool {
	for d, n := range need {
		if n > room[d] {
			return false
		}
	}
	return true
}
