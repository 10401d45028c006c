package topology

import (
	"maps"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Batch is what constraints on other pods need to know of a pod batch.
type Batch struct {
	*capacity.Class
	// All are its constraints, with all its preferences. Owned are those in force.
	All, Owned []Constraint
	// Member are the groups that count its pods.
	Member []*Group
	// Blocked are the groups of anti-affinity terms that select its pods: these must not be in a domain with a pod that has such a term.
	Blocked []*Group
	// Spreads are the groups of its own constraints in force that spread its pods over a label.
	Spreads []*Group
	// Most is how many of its pods one node may hold under its own constraints in force.
	Most int
}

// Enforce puts those of the batch's constraints in force for which which returns true, and no others.
func (u *Batch) Enforce(which func(*Constraint) bool) {
	for i := range u.Owned {
		u.Owned[i].Group.asked--
	}
	u.Owned = u.Owned[:0]
	for i := range u.All {
		if which(&u.All[i]) {
			u.Owned = append(u.Owned, u.All[i])
			u.All[i].Group.asked++
		}
	}
	u.Spreads, u.Most = u.Spreads[:0], math.MaxInt
	for i := range u.Owned {
		o := &u.Owned[i]
		if o.Effect == Spreads && !o.Group.Host {
			u.Spreads = append(u.Spreads, o.Group)
		}
		if limit, ok := o.Kind.Limit(o); ok && o.self {
			u.Most = min(u.Most, max(1, limit))
		}
	}
}

// Owns reports whether a constraint of the batch that is in force uses the group.
func (u *Batch) Owns(g *Group) bool {
	return slices.ContainsFunc(u.Owned, func(o Constraint) bool { return o.Group == g })
}

// Follows reports whether the batch's pods must share a node with other pods, because of pod affinity over the host name.
func (u *Batch) Follows() bool {
	return slices.ContainsFunc(u.Owned, func(o Constraint) bool { return o.Effect == Attracts && o.Group.Host })
}

// SpreadsOverHosts reports whether the batch's pods are spread over nodes.
func (u *Batch) SpreadsOverHosts() bool {
	return slices.ContainsFunc(u.Owned, func(o Constraint) bool { return o.Effect == Spreads && o.Group.Host })
}

// First reports whether a pod of the batch satisfies its own affinity terms as the first pod that matches them: it matches all of them
// itself, and no other pod matches all of the required ones (nor a preferred one that is in force).
func (u *Batch) First() bool {
	for i := range u.Owned {
		if o := &u.Owned[i]; o.Effect == Attracts && (!o.self || o.Group.total > 0) {
			return false
		}
	}
	return true
}

// CoarseKeys returns the labels other than the host name over which the batch's pods are counted or limited.
func (u *Batch) CoarseKeys() []string {
	keys := map[string]bool{}
	for _, o := range u.Owned {
		if !o.Group.Host {
			keys[o.Group.Key] = true
		}
	}
	for _, g := range u.Member {
		if !g.Host && g.Concerns() {
			keys[g.Key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// Allows reports whether one more pod of the batch may be placed in the given domains, considering all topology keys but the host name.
func (u *Batch) Allows(where Site) bool {
	for i := range u.Owned {
		if o := &u.Owned[i]; !o.Group.Host && !u.Satisfies(o, where) {
			return false
		}
	}
	for _, g := range u.Blocked {
		if g.Host {
			continue
		}
		if d, ok := where.Of(g); ok && g.Owners[d] > 0 {
			return false
		}
	}
	return true
}

// Satisfies reports whether a constraint over a label allows one more pod of the batch in the given domains.
func (u *Batch) Satisfies(o *Constraint, where Site) bool {
	d, ok := where.Of(o.Group)
	return o.Kind.allows(o, u, d, ok)
}

// RoomOn returns how many more pods of the batch, at most k, a node may take under constraints over host names.
func (u *Batch) RoomOn(node, k int, all hosts) int {
	for i := range u.Owned {
		if o := &u.Owned[i]; o.Group.Host {
			k = o.Kind.room(o, u, node, k, all)
		}
	}
	for _, g := range u.Blocked {
		if g.Host && g.Owners[node] > 0 {
			return 0
		}
	}
	return k
}

// Even reports whether the batch's own constraints that spread its pods over labels hold with one more pod in the given domains. lowest has the
// least count of a domain for each of these constraints.
func (u *Batch) Even(where Site, lowest []int) bool {
	i := 0
	for k := range u.Owned {
		o := &u.Owned[k]
		if o.Effect != Spreads || o.Group.Host {
			continue
		}
		if d, ok := where.Of(o.Group); !ok || o.Group.Counts[d]+o.own() > o.skew+lowest[i] {
			return false
		}
		i++ // lowest is in the order of u.Spreads, the groups of these constraints
	}
	return true
}

// Tally is how many pods in the given domains count for the batch's own spread constraints over labels, and for those of other batches
// that count its pods.
type Tally struct{ Own, others int }

func (u *Batch) Tally(where Site) Tally {
	var out Tally
	for _, g := range u.Spreads {
		if d, ok := where.Of(g); ok {
			out.Own += g.Counts[d]
		}
	}
	for _, g := range u.Member {
		if g.Filter != nil && !g.Host && g.asked > 0 {
			if d, ok := where.Of(g); ok {
				out.others += g.Counts[d]
			}
		}
	}
	return out
}

func (c Tally) Less(o Tally) bool { return c.Own < o.Own || c.Own == o.Own && c.others < o.others }
