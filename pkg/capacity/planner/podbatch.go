package planner

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
)

// podBatch is the demand of one class (and gang) in one plan.
type podBatch struct {
	topology.Batch
	index   int      // position in run.podBatches
	holders []holder // its pods, in the order in which they get placements
	gang    *capacity.Gang
	need    []int64 // what a pod takes, by dimension
	// fixZone: its new nodes must be in one zone each.
	fixZone bool

	// steps are the preferences in the order in which they are dropped; the first level of them have been dropped.
	steps []topology.Step
	level int
	asks  catalog.Asks
	// candidates are the offering candidates that may be bought for the batch if their capacity suffices.
	candidates packing.Bits
	// offered are those of the candidates that may be bought for it now: without special hardware, unless that is needed. spared: special hardware
	// was left out. special: the batch may use all candidates, since nothing else holds its pods.
	offered         packing.Bits
	spared, special bool
	// keysKept is the cached result of keysNow, keysAt the value of topology.Groups.Changes it belongs to.
	keysKept []string
	keysAt   int

	// value is what a pod pays for the capacity that it takes (packing.Result.Values); 0: unknown.
	value float64

	left   int // number of pods without a placement
	placed []placed
	// refusing are idle nodes with capacity for its pods that admitted none of them, because of other pods, when fillOpen last tried the batch.
	refusing []*places
	// unordered is how many of its placements were legal in no order of binding, and were removed (run.order).
	unordered int
	// banned are pools that it can't use, with the reasons: attempts have shown that the pools' minValues can't be met for its nodes.
	banned map[*catalog.PoolOffers]string
}

// holder is a pod of a batch, or one that its owner has still to create.
type holder struct {
	pod   capacity.PodRef
	owner types.UID
	class *capacity.Class // with owner: the class, with one of this owner's pods
}

// placed is pods of a batch on a node.
type placed struct {
	node *node
	n    int
}

// podBatchesOf merges demand into pod batches by class and gang, in order of first appearance.
func podBatchesOf(demand []capacity.Demand) []*podBatch {
	type key struct {
		class capacity.ClassKey
		gang  string
	}
	index := map[key]*podBatch{}
	var out []*podBatch
	for i := range demand {
		d := &demand[i]
		k := key{class: d.Class.Key}
		if d.Gang != nil {
			k.gang = d.Gang.Key
		}
		u, ok := index[k]
		if !ok {
			u = &podBatch{index: len(out), gang: d.Gang}
			u.Class = d.Class
			index[k] = u
			out = append(out, u)
		}
		for _, p := range d.Pods {
			u.holders = append(u.holders, holder{pod: p})
		}
		for range d.Ahead {
			u.holders = append(u.holders, holder{owner: d.Owner, class: d.Class})
		}
	}
	return out
}

// findSteps lists the preferences. softTaints: some pool or node has a PreferNoSchedule taint.
func (u *podBatch) findSteps(softTaints bool) {
	for s := range topology.Step(len(topology.Steps)) {
		n := 0
		switch {
		case s == topology.DropPreferredTerm:
			n = len(u.Preferred)
		case s == topology.ToleratePreferNoSchedule && softTaints:
			n = 1
		}
		for i := range u.All {
			if u.All[i].Step == s {
				n++
			}
		}
		u.steps = append(u.steps, slices.Repeat([]topology.Step{s}, n)...)
	}
}

// dropped returns how many steps of one kind have been dropped.
func (u *podBatch) dropped(kind topology.Step) int {
	n := 0
	for _, s := range u.steps[:u.level] {
		if s == kind {
			n++
		}
	}
	return n
}

// relaxed sets what the batch requires when u.level preferences have been dropped. The heaviest preferred node term that has not been dropped counts
// as required.
func (u *podBatch) relaxed() {
	u.asks = catalog.Asks{Terms: u.Terms, Tolerations: u.Tolerations, Preferred: u.dropped(topology.ToleratePreferNoSchedule) > 0, Scheduler: u.Scheduler()}
	if n := u.dropped(topology.DropPreferredTerm); n < len(u.Preferred) {
		terms := u.Terms
		if len(terms) == 0 {
			terms = []capacity.Requirements{nil}
		}
		if narrowed := capacity.IntersectTerms(terms, []capacity.Requirements{u.Preferred[n].Term}); len(narrowed) > 0 {
			u.asks.Terms = narrowed
		} else {
			u.asks.Terms = []capacity.Requirements{{capacity.LabelHostname: capacity.ValueIn(capacity.LabelHostname)}}
		}
	}
	u.keysKept = nil
	u.Enforce(func(o *topology.Constraint) bool { return o.Hard() || o.Rank >= u.dropped(o.Step) })
}

// demandHard puts only required constraints in force.
func (u *podBatch) demandHard() {
	u.keysKept = nil
	u.Enforce((*topology.Constraint).Hard)
}

// keysNow returns the sorted labels that keys returns, cached until a constraint of any batch comes into or goes out of force.
func (r *run) keysNow(u *podBatch) []string {
	if u.keysAt != r.topo.Changes || u.keysKept == nil {
		u.keysKept, u.keysAt = slices.Sorted(maps.Keys(u.keys())), r.topo.Changes
	}
	return u.keysKept
}

// keys returns the labels whose value decides whether the batch's pods may be on a node. A node for the batch must have one value of
// each, whatever is launched for it.
func (u *podBatch) keys() map[string]bool {
	out := u.keysOfOthers()
	for _, term := range u.asks.Terms {
		for key, r := range term {
			if !r.AllowsAbsent() || key == capacity.LabelZone {
				out[key] = true
			}
		}
	}
	delete(out, capacity.LabelHostname)
	delete(out, capacity.FieldNodeName)
	return out
}

// keysOfOthers returns the labels among keys that constraints on other pods use, not only the batch's own node terms; and the zone if filters that
// the planner doesn't know may depend on it (Options.FixZone).
func (u *podBatch) keysOfOthers() map[string]bool {
	out := map[string]bool{}
	if u.fixZone {
		out[capacity.LabelZone] = true
	}
	for _, o := range u.Owned {
		if !o.Group.Host {
			out[o.Group.Key] = true
		}
	}
	for _, g := range u.Member {
		if !g.Concerns() {
			continue
		}
		if !g.Host {
			out[g.Key] = true
		}
		if g.Filter != nil { // whether the group counts its pods must not depend on what is launched
			for _, key := range g.Filter.Keys {
				out[key] = true
			}
			for _, term := range g.Filter.Terms {
				for key := range term {
					out[key] = true
				}
			}
		}
	}
	return out
}
