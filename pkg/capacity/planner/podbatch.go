package planner

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// podBatch is the demand of one class (and gang) in one plan.
type podBatch struct {
	*capacity.Class
	index   int
	holders []holder
	gang    *capacity.Gang
	need    []int64
	// fixZone: its new nodes must be in one zone each.
	fixZone bool

	// steps are the preferences in the order in which they are dropped; those before level have been.
	steps []step
	level int
	// all are the topology constraints with all preferences, owned those that are in force.
	all   []owned
	owned []owned
	// member are the groups whose selector matches pods of this batch.
	member []*group
	// blocked are the groups of anti-affinity terms, of other pods or its own, that select pods of this batch.
	blocked []*group
	// spreads are the groups of its own spread constraints in force over labels other than the host name.
	spreads []*group
	asks    asks
	// candidates are the candidates that may be bought for the batch, apart from capacity.
	candidates packing.Bits
	// offered are those of them that are bought for it: without special hardware, unless that is needed. spared: some were left out;
	// special: it may use all, since nothing else holds its pods.
	offered         packing.Bits
	spared, special bool
	// keysKept is the cached result of keysNow, keysAt the value of topology.changes it belongs to.
	keysKept []string
	keysAt   int
	// most is how many of its pods one node may hold under the batch's own constraints in force.
	most int

	left   int
	placed []placed
	// unordered is how many of its placements never became legal.
	unordered int
	// banned are pools that it can't use, with reasons found while planning.
	banned map[*poolOffers]string
}

type holder struct {
	pod   capacity.PodRef
	owner types.UID
}

// placed is pods of a batch on a node.
type placed struct {
	node *node
	n    int
}

// step is one preference that can be dropped.
type step int

// The steps are in Karpenter's order (PK-5), without its first: alternative required terms are considered together here, not one by one.
const (
	dropPreferredAffinity step = iota
	dropPreferredAntiAffinity
	dropPreferredTerm
	dropSoftSpread
	toleratePreferNoSchedule
)

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
			u = &podBatch{Class: d.Class, index: len(out), gang: d.Gang}
			index[k] = u
			out = append(out, u)
		}
		for _, p := range d.Pods {
			u.holders = append(u.holders, holder{pod: p})
		}
		for range d.Ahead {
			u.holders = append(u.holders, holder{owner: d.Owner})
		}
	}
	return out
}

// findSteps lists the preferences. softTaints: some pool or node has a PreferNoSchedule taint.
func (u *podBatch) findSteps(softTaints bool) {
	u.steps = nil
	for range u.PreferredAffinity {
		u.steps = append(u.steps, dropPreferredAffinity)
	}
	for range u.PreferredAntiAffinity {
		u.steps = append(u.steps, dropPreferredAntiAffinity)
	}
	for range u.Preferred {
		u.steps = append(u.steps, dropPreferredTerm)
	}
	for _, s := range u.Spread {
		if !s.Hard {
			u.steps = append(u.steps, dropSoftSpread)
		}
	}
	if softTaints {
		u.steps = append(u.steps, toleratePreferNoSchedule)
	}
}

// dropped returns how many steps of one kind have been dropped.
func (u *podBatch) dropped(kind step) int {
	n := 0
	for _, s := range u.steps[:u.level] {
		if s == kind {
			n++
		}
	}
	return n
}

// relaxed sets what the batch requires now that level preferences have been dropped: of its preferred node terms, the heaviest one left counts
// as required.
func (u *podBatch) relaxed() {
	u.asks = asks{terms: u.Terms, tolerations: u.Tolerations, preferred: u.dropped(toleratePreferNoSchedule) > 0, scheduler: u.Scheduler()}
	if n := u.dropped(dropPreferredTerm); n < len(u.Preferred) {
		terms := u.Terms
		if len(terms) == 0 {
			terms = []capacity.Requirements{nil}
		}
		if narrowed := capacity.IntersectTerms(terms, []capacity.Requirements{u.Preferred[n].Term}); len(narrowed) > 0 {
			u.asks.terms = narrowed
		} else {
			u.asks.terms = []capacity.Requirements{{capacity.LabelHostname: capacity.ValueIn(capacity.LabelHostname)}}
		}
	}
	u.enforce(func(o *owned) bool { return o.step < 0 || o.rank >= u.dropped(o.step) })
}

// demandHard puts only required constraints in force.
func (u *podBatch) demandHard() { u.enforce((*owned).hard) }

// enforce puts those of the batch's constraints in force for which which returns true, and no others.
func (u *podBatch) enforce(which func(*owned) bool) {
	u.keysKept = nil
	for i := range u.owned {
		u.owned[i].group.asked--
	}
	u.owned = u.owned[:0]
	for i := range u.all {
		if which(&u.all[i]) {
			u.owned = append(u.owned, u.all[i])
			u.all[i].group.asked++
		}
	}
	u.spreads, u.most = u.spreads[:0], math.MaxInt
	for i := range u.owned {
		o := &u.owned[i]
		if o.kind == spread && !o.group.host {
			u.spreads = append(u.spreads, o.group)
		}
		if limit, ok := o.limit(); ok && o.self {
			u.most = min(u.most, max(1, limit))
		}
	}
}

// concerns reports whether any constraint uses the group. Preferences that used it may have been dropped.
func (g *group) concerns() bool { return g.asked > 0 || len(g.owners)+len(g.repelling) > 0 }

// keysNow returns the batch's keys, cached until a constraint of any batch comes into or goes out of force.
func (r *run) keysNow(u *podBatch) []string {
	if u.keysAt != r.topo.changes || u.keysKept == nil {
		u.keysKept, u.keysAt = slices.Sorted(maps.Keys(u.keys())), r.topo.changes
	}
	return u.keysKept
}

// keys returns the labels whose value decides whether the batch's pods may be on a node. A node for the batch must have one value of
// each, whatever is launched for it.
func (u *podBatch) keys() map[string]bool {
	out := map[string]bool{}
	if u.fixZone {
		out[capacity.LabelZone] = true
	}
	for _, term := range u.asks.terms {
		for key, r := range term {
			if !r.AllowsAbsent() || key == capacity.LabelZone {
				out[key] = true
			}
		}
	}
	for _, o := range u.owned {
		if !o.group.host {
			out[o.group.key] = true
		}
	}
	for _, g := range u.member {
		if !g.concerns() {
			continue
		}
		if !g.host {
			out[g.key] = true
		}
		if g.filter != nil { // whether the group counts its pods must not depend on what is launched
			for _, key := range g.filter.keys {
				out[key] = true
			}
			for _, term := range g.filter.terms {
				for key := range term {
					out[key] = true
				}
			}
		}
	}
	delete(out, capacity.LabelHostname)
	delete(out, capacity.FieldNodeName)
	return out
}

// coarseKeys returns the labels other than the host name over which the batch's pods are counted or limited.
func (u *podBatch) coarseKeys() []string {
	keys := map[string]bool{}
	for _, o := range u.owned {
		keys[o.group.key] = true
	}
	for _, g := range u.member {
		if g.concerns() {
			keys[g.key] = true
		}
	}
	delete(keys, capacity.LabelHostname)
	delete(keys, keyPorts)
	return slices.Sorted(maps.Keys(keys))
}

// follows reports whether the batch's pods must share a node with other pods.
func (u *podBatch) follows() bool {
	for _, o := range u.owned {
		if o.kind == affinity && o.group.host {
			return true
		}
	}
	return false
}

// owns reports whether a constraint of the batch that is in force uses the group.
func (u *podBatch) owns(g *group) bool {
	for i := range u.owned {
		if u.owned[i].group == g {
			return true
		}
	}
	return false
}
