package planner

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// learn finds out what went wrong in an attempt and changes what the next attempt starts from. It returns false if there is nothing to
// change.
func (r *run) learn() bool {
	if r.learnGangs() {
		r.topo.ForgetDomains() // the next attempt will place pods differently
		return true
	}
	if r.learnDomains() || r.learnPriority() {
		return true
	}
	if r.learnMinimum() {
		r.topo.ForgetDomains()
		return true
	}
	return false
}

// mayLearn reports whether an attempt can teach anything.
func (r *run) mayLearn() bool {
	return slices.ContainsFunc(r.podBatches, func(u *podBatch) bool { return u.gang != nil }) ||
		slices.ContainsFunc(r.topo.Groups, func(g *topology.Group) bool { return g.Filter != nil }) ||
		slices.ContainsFunc(r.catalog.Pools, func(p *catalog.PoolOffers) bool { return r.catalog.Limited(p) || p.Minimum })
}

// learnGangs leaves out the last gang with fewer placements than it needs, or all such gangs if they are many: other pods may use their capacity.
func (r *run) learnGangs() bool {
	short := r.shortGangs()
	if len(short) == 0 {
		return false
	}
	if len(short) > maxAttempts/2 {
		for _, key := range short {
			r.excluded[key] = true
		}
		return true
	}
	r.excluded[short[len(short)-1]] = true
	return true
}

// shortGangs returns the gangs with fewer pods placed than they need, in order of demand.
func (r *run) shortGangs() []string {
	had, needs := map[string]int{}, map[string]int{}
	var order []string
	for _, u := range r.podBatches {
		if u.gang == nil || r.excluded[u.gang.Key] {
			continue
		}
		if _, ok := needs[u.gang.Key]; !ok {
			order = append(order, u.gang.Key)
		}
		needs[u.gang.Key] = u.gang.Missing
		had[u.gang.Key] += len(u.holders) - u.left
	}
	return slices.DeleteFunc(order, func(key string) bool { return had[key] >= needs[key] })
}

// learnDomains is for batches with placements that never became legal: from the next attempt on, their spread groups count the domains of planned
// nodes from the start.
func (r *run) learnDomains() bool {
	learned := false
	for _, u := range r.podBatches {
		if u.unordered == 0 {
			continue
		}
		for i := range u.Owned {
			if o := &u.Owned[i]; o.Effect == topology.Spreads {
				learned = o.Group.LearnDomains() || learned
			}
		}
	}
	return learned
}

// learnPriority makes the next attempt buy nodes for pods of one priority after the other, the highest first, if limits have left out a pod while
// pods of a lower priority were placed.
func (r *run) learnPriority() bool {
	if r.byPriority {
		return false
	}
	for i, u := range r.podBatches {
		if r.active(u) && slices.ContainsFunc(r.podBatches[i+1:], func(o *podBatch) bool { return o.Priority < u.Priority && o.left < len(o.holders) }) && r.atLimit(u) {
			r.byPriority = true
			return true
		}
	}
	return false
}

// atLimit reports whether a limit keeps the batch out of a pool.
func (r *run) atLimit(u *podBatch) bool {
	for _, p := range r.catalog.Pools {
		if !r.catalog.Limited(p) {
			continue
		}
		var candidates []int
		for _, v := range p.LabelChoices {
			for b := v.First; b < v.Last; b++ {
				if u.offered.Has(b) && packing.Fits(r.catalog.RoomOf(b), u.need, 1) > 0 {
					candidates = append(candidates, b)
				}
			}
		}
		if len(candidates) > 0 && r.byLimits(p, candidates) != "" {
			return true
		}
	}
	return false
}

// learnMinimum keeps batches out of pools whose minValues their nodes can't satisfy.
func (r *run) learnMinimum() bool {
	learned := false
	for _, n := range r.nodes[r.existing:] {
		if n.short == "" {
			continue
		}
		p := r.catalog.Pools[r.catalog.Candidates[n.candidate].Pool]
		for _, s := range n.content {
			if s.podBatch.banned == nil {
				s.podBatch.banned = map[*catalog.PoolOffers]string{}
			}
			if _, known := s.podBatch.banned[p]; !known {
				s.podBatch.banned[p] = n.short
				learned = true
			}
		}
	}
	return learned
}
