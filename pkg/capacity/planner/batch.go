package planner

import (
	"maps"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// batch is what constraints on other pods need to know of a pod batch.
type batch struct {
	*capacity.Class
	// all are its constraints with all preferences, owned those that are in force.
	all, owned []constraint
	// member are the groups that count its pods.
	member []*group
	// blocked are the groups of constraints, of other pods or its own, that keep its pods off their domains.
	blocked []*group
	// spreads are the groups of its own constraints in force that spread its pods over a label.
	spreads []*group
	// most is how many of its pods one node may hold under its own constraints in force.
	most int
}

// enforce puts those of the batch's constraints in force for which which returns true, and no others.
func (u *batch) enforce(which func(*constraint) bool) {
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
		if o.effect == spreads && !o.group.host {
			u.spreads = append(u.spreads, o.group)
		}
		if limit, ok := o.kind.limit(o); ok && o.self {
			u.most = min(u.most, max(1, limit))
		}
	}
}

// owns reports whether a constraint of the batch that is in force uses the group.
func (u *batch) owns(g *group) bool {
	return slices.ContainsFunc(u.owned, func(o constraint) bool { return o.group == g })
}

// follows reports whether the batch's pods must share a node with other pods.
func (u *batch) follows() bool {
	return slices.ContainsFunc(u.owned, func(o constraint) bool { return o.effect == attracts && o.group.host })
}

// spreadsOverHosts reports whether the batch's pods are spread over nodes.
func (u *batch) spreadsOverHosts() bool {
	return slices.ContainsFunc(u.owned, func(o constraint) bool { return o.effect == spreads && o.group.host })
}

// first reports whether a pod of the batch satisfies its own affinity terms as the first pod that matches them: it matches all of them
// itself, and no other pod matches any.
func (u *batch) first() bool {
	for i := range u.owned {
		if o := &u.owned[i]; o.effect == attracts && (!o.self || o.group.total > 0) {
			return false
		}
	}
	return true
}

// coarseKeys returns the labels other than the host name over which the batch's pods are counted or limited.
func (u *batch) coarseKeys() []string {
	keys := map[string]bool{}
	for _, o := range u.owned {
		if !o.group.host {
			keys[o.group.key] = true
		}
	}
	for _, g := range u.member {
		if !g.host && g.concerns() {
			keys[g.key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// allows reports whether one more pod of the batch may be placed in the given domains, considering all topology keys but the host name.
func (u *batch) allows(where site) bool {
	for i := range u.owned {
		if o := &u.owned[i]; !o.group.host && !u.satisfies(o, where) {
			return false
		}
	}
	for _, g := range u.blocked {
		if g.host {
			continue
		}
		if d, ok := where.of(g); ok && g.owners[d] > 0 {
			return false
		}
	}
	return true
}

// satisfies reports whether a constraint over a label allows one more pod of the batch in the given domains.
func (u *batch) satisfies(o *constraint, where site) bool {
	d, ok := where.of(o.group)
	return o.kind.allows(o, u, d, ok)
}

// roomOn returns how many more pods of the batch, at most k, a node may take under the rules among pods of one node.
func (u *batch) roomOn(node, k int, all hosts) int {
	for i := range u.owned {
		if o := &u.owned[i]; o.group.host {
			k = o.kind.room(o, u, node, k, all)
		}
	}
	for _, g := range u.blocked {
		if g.host && g.owners[node] > 0 {
			return 0
		}
	}
	return k
}

// even reports whether the batch's own constraints that spread its pods over labels hold with one more pod in the given domains, if
// lowest are the least counts.
func (u *batch) even(where site, lowest []int) bool {
	i := 0
	for k := range u.owned {
		o := &u.owned[k]
		if o.effect != spreads || o.group.host {
			continue
		}
		if d, ok := where.of(o.group); !ok || o.group.counts[d]+o.own() > o.skew+lowest[i] {
			return false
		}
		i++ // u.spreads are the groups of these constraints, in the same order
	}
	return true
}

// tally is how many pods in the given domains count for the batch's own spread constraints over labels, and for those of other batches
// that count its pods.
type tally struct{ own, others int }

func (u *batch) tally(where site) tally {
	var out tally
	for _, g := range u.spreads {
		if d, ok := where.of(g); ok {
			out.own += g.counts[d]
		}
	}
	for _, g := range u.member {
		if g.filter != nil && !g.host && g.asked > 0 {
			if d, ok := where.of(g); ok {
				out.others += g.counts[d]
			}
		}
	}
	return out
}

func (c tally) less(o tally) bool { return c.own < o.own || c.own == o.own && c.others < o.others }
