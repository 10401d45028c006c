package capacity

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// Planner plans. It keeps its catalogue of offers between plans as long as pools and their types stay the same, the types
// by identity: who changes a type hands over a new slice. It is not safe for use by several goroutines at a time.
type Planner struct{ memory memory }

// NewPlanner makes a planner that has seen nothing yet.
func NewPlanner() *Planner { return &Planner{} }

// Decide plans once.
func Decide(view *View, opts Options) *Plan { return NewPlanner().Plan(view, opts) }

// maxAttempts bounds how often a plan is made anew with what the last one has taught.
const maxAttempts = 8

// Plan decides where each pod of the demand goes and what has to be bought for it. It is a pure function of its
// arguments.
//
//  1. Demand is merged into units of identical pods; pools and types into a catalogue of bins.
//  2. Pods and constraints on existing nodes are counted.
//  3. Units fill the room that is there or on its way, in order of the demand.
//  4. What is left is packed on new nodes, pools of the highest weight first.
//  5. Units with something left give up a preference, and it starts again at 3 for them.
//  6. Each new node becomes the set of offers that hold its pods.
//  7. Placements are put in an order in which each is allowed with all nodes present. What that teaches (a domain
//     nobody had thought of, a gang that is short) starts it again at 3 for all.
//  8. Where it isn't clear what a zone costs, the same is done with the other opinion, and the better plan is kept.
func (p *Planner) Plan(view *View, opts Options) *Plan {
	r := newRun(view, &opts, &p.memory)
	// What is learned hardly depends on how well nodes are packed, so effort waits until there is nothing to learn.
	effort := max(0, opts.Effort)
	if r.mayLearn() || r.mayDoubt() {
		effort = packing.Quick
	}
	plan := r.settled(effort)
	if r.ambiguous && len(plan.Placements) <= maxDoubted {
		r.alone = true
		if other := r.settled(effort); other.better(plan) {
			plan = other
		} else {
			r.alone = false
		}
	}
	if effort == packing.Quick {
		if other := r.settled(max(0, opts.Effort)); !plan.better(other) {
			plan = other
		}
	}
	return plan
}

// maxDoubted is how many pods may be planned for a second time because it isn't clear what zones cost.
const maxDoubted = 2000

// settled plans until an attempt teaches nothing any more.
func (r *run) settled(effort int) *Plan {
	for attempt := 1; ; attempt++ {
		r.reset()
		r.effort = effort
		r.decide()
		r.shapes()
		order := r.order()
		if attempt >= maxAttempts || !r.learn() {
			return r.resumed(order)
		}
	}
}

// maxResumed bounds how often planning goes on with what was taken back.
const maxResumed = 3

// resumed goes on planning for pods that were taken back at the end, and for those that may have the room they leave.
func (r *run) resumed(order []binding) *Plan {
	plan := r.emit(order)
	for range maxResumed {
		if !r.tookBack || r.waiting() == 0 {
			break
		}
		r.resume(order)
		r.decide()
		r.shapes()
		order = r.order()
		other := r.emit(order)
		if !other.better(plan) {
			break
		}
		plan = other
	}
	return plan
}

// mayDoubt says whether there are constraints that make pods choose between zones and the like.
func (r *run) mayDoubt() bool {
	return slices.ContainsFunc(r.topo.groups, func(g *group) bool { return !g.host })
}

// better says whether a plan places more pods than another, or as many with more of their preferences, or for less.
func (p *Plan) better(than *Plan) bool {
	if a, b := p.refused(), than.refused(); a != b {
		return a < b
	}
	if p.yielded != than.yielded {
		return p.yielded < than.yielded
	}
	return p.compared < than.compared*(1-1e-9)
}

func (p *Plan) refused() int {
	n := 0
	for i := range p.Refused {
		n += len(p.Refused[i].Pods)
	}
	return n
}
