package planner

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// Planner makes plans. It keeps its catalog of offerings between plans as long as the pools and their types stay the same. Types are
// compared by identity: a caller that changes a type must pass a new slice. A Planner is not safe for concurrent use.
type Planner struct {
	// memory has the catalog for plans that ignore the limit of all pools, within the one for plans that keep it.
	memory catalog.Memory
	within catalog.Memory
}

// New returns a planner without a catalog.
func New() *Planner { return &Planner{} }

// Decide makes one plan.
func Decide(view *capacity.View, opts capacity.Options) *capacity.Plan { return New().Plan(view, opts) }

// maxAttempts limits how often a plan is made again because the last attempt has shown what to do differently (learn).
const maxAttempts = 8

// Plan decides where each pod of the demand goes and what has to be bought for it. It is a pure function of its
// arguments.
//
//  1. Demand is merged into batches of identical pods; pools and types into a catalog of offering candidates.
//  2. Pods and constraints on existing nodes are counted.
//  3. Pod batches fill capacity that exists or is being launched, in order of the demand.
//  4. The remaining pods are packed on new nodes, using pools of the highest weight first.
//  5. Batches with pods left drop a preference each, and step 3 starts again for them.
//  6. Each new node gets the set of offerings that hold its pods; in pools that balance zones, those of one zone.
//  7. Placements are put in an order in which each is legal with all nodes present. If that teaches something (a domain
//     that no count knew, a gang without enough placements), step 3 starts again for all batches.
//  8. What a pod costs in a zone is estimated as if nodes were shared perfectly. If a node for each pod would make another zone the
//     cheapest, steps 3 to 7 are done with that estimate, too, and the better plan is kept.
//
// If pools share a limit, the plan that is made without it counts as long as it keeps it, so that a limit which isn't reached changes no
// plan: a limit makes offerings that would otherwise be left out worth considering. If that plan doesn't keep it, all steps are done within it.
func (p *Planner) Plan(view *capacity.View, opts capacity.Options) *capacity.Plan {
	total := capacity.TotalOf(view.Pools)
	if total == nil || !usedUp(total, view.Pools) {
		if plan := newRun(view, nil, &opts, &p.memory).best().Plan; total == nil || keeps(plan, total) {
			return plan
		}
	}
	return newRun(view, total, &opts, &p.within).best().Plan
}

// best makes plans in the ways that may be the best, and returns the best of them.
func (r *run) best() outcome {
	// What attempts teach hardly depends on how well nodes are packed, so these are made quickly, and effort is spent on one more at the end.
	effort := max(0, r.opts.Effort)
	if r.mayLearn() || r.mayDoubt() {
		effort = packing.Quick
	}
	best := r.settled(effort)
	if r.ambiguous && len(best.Placements) <= maxDoubted {
		r.alone = true
		if other := r.settled(effort); other.better(best) {
			best = other
		} else {
			r.alone = false
		}
	}
	if effort == packing.Quick {
		if other := r.settled(max(0, r.opts.Effort)); !best.better(other) {
			best = other
		}
	}
	return best
}

// maxDoubted is the maximum number of pods for which a second plan is made because it isn't clear what zones cost.
const maxDoubted = 2000

// settled makes plans, each with what the one before has taught (learn), until one teaches nothing more. It returns that one.
func (r *run) settled(effort int) outcome {
	for attempt := 1; ; attempt++ {
		r.reset()
		r.effort = effort
		r.decide()
		r.shapes()
		r.balance()
		order := r.order()
		if attempt >= maxAttempts || !r.learnLopsided(attempt) && !r.learn() {
			return r.resumed(order)
		}
	}
}

// maxResumed limits how often planning continues with pods that were taken back.
const maxResumed = 3

// resumed continues planning for pods whose placements order and shapes have taken back, because no order makes them legal or no offering holds their
// node, and for pods that fit into the capacity which that has freed.
func (r *run) resumed(order []binding) outcome {
	best := r.emit(order)
	for range maxResumed {
		if !r.tookBack || r.waiting() == 0 {
			break
		}
		r.resume(order)
		r.decide()
		r.shapes()
		r.balance()
		order = r.order()
		other := r.emit(order)
		if !other.better(best) {
			break
		}
		best = other
	}
	return best
}

// mayDoubt reports whether constraints make pods choose between zones or other domains, so that what each of these costs matters.
func (r *run) mayDoubt() bool {
	return slices.ContainsFunc(r.topo.Groups, func(g *topology.Group) bool { return !g.Host })
}

// outcome is a plan with what decides whether it is better than another.
type outcome struct {
	*capacity.Plan
	// compared is the cost in $/h, with the price factors and surcharges that count when prices are compared. dropped is how many preferences were
	// dropped, counted for each pod that is placed.
	compared float64
	dropped  int
}

// better reports whether a plan places more pods than another or, with as many, keeps more of their preferences or costs less.
func (p outcome) better(than outcome) bool {
	if a, b := p.refused(), than.refused(); a != b {
		return a < b
	}
	if p.dropped != than.dropped {
		return p.dropped < than.dropped
	}
	return p.compared < than.compared*(1-1e-9)
}

func (p outcome) refused() int {
	n := 0
	for i := range p.Refused {
		n += len(p.Refused[i].Pods)
	}
	return n
}
