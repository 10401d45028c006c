package capacity

import (
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// fillOpen places what it can of a unit on nodes that are there, in flight or planned already, in this order.
func (r *run) fillOpen(u *unit) {
	keys := u.coarseKeys()
	for u.left > 0 {
		before := u.left
		places := r.places(u, keys)
		if len(places) == 0 {
			return
		}
		r.fillPlaces(u, places, len(keys) > 0)
		// Where every node got one more the host name's least count has risen: there may be room once more.
		if u.left == before || !u.hostSpread() {
			return
		}
	}
}

func (u *unit) hostSpread() bool {
	for i := range u.owned {
		if u.owned[i].kind == spread && u.owned[i].group.host {
			return true
		}
	}
	return false
}

// places are nodes that are alike for the labels that matter to a unit.
type places struct {
	nodes []*node // still to be tried
}

// places are the nodes with room for the unit, by the values of the keys.
func (r *run) places(u *unit, keys []string) []*places {
	var out []*places
	index := map[string]*places{}
	for _, n := range r.nodes {
		if n.gone || packing.Fits(n.free, u.need, 1) == 0 || !r.admits(u, n) || r.hostRoom(u, n, 1) == 0 {
			continue
		}
		var id strings.Builder
		for _, key := range keys {
			v, ok := r.labelIfPlaced(n, key)
			id.WriteString(v)
			if !ok {
				id.WriteByte(1)
			}
			id.WriteByte(0)
		}
		p, ok := index[id.String()]
		if !ok {
			p = &places{}
			index[id.String()] = p
			out = append(out, p)
		}
		p.nodes = append(p.nodes, n)
	}
	return out
}

// labelIfPlaced is the label a node would have once a pod that depends on it is there.
func (r *run) labelIfPlaced(n *node, key string) (string, bool) {
	if n.planned() {
		return r.catalog.label(n.bin, key)
	}
	return n.view.label(key)
}

// admits says whether the unit may be on the node as far as neither room nor other pods are concerned.
func (r *run) admits(u *unit, n *node) bool {
	if n.planned() {
		return u.bins.Has(n.bin)
	}
	if n.view.Closed || n.view.Unschedulable && !Tolerates(u.Tolerations, &unschedulableTaint) || r.forbiddenNode[forbiddenNode{u.Key, n.view.Name}] {
		return false
	}
	return u.asks.tolerates(n.view.Taints) == nil && u.asks.matches(n.view.label)
}

// fillPlaces places pods of the unit, one by one where labels matter, at the place where the fewest pods are.
func (r *run) fillPlaces(u *unit, all []*places, coarse bool) {
	for u.left > 0 {
		var best *places
		var bestTally tally
		for _, p := range all {
			if len(p.nodes) == 0 {
				continue
			}
			where := r.siteIfPlaced(p.nodes[0])
			if coarse && !r.coarseAllows(u, where) {
				continue
			}
			if c := u.tally(where); best == nil || c.less(bestTally) {
				best, bestTally = p, c
			}
		}
		if best == nil {
			return
		}
		n := best.nodes[0]
		k := packing.Fits(n.free, u.need, u.left)
		if coarse {
			k = min(k, 1)
		}
		if k = r.hostRoom(u, n, k); k == 0 {
			best.nodes = best.nodes[1:]
			continue
		}
		r.place(u, n, k)
	}
}

// tally is how many pods count at a place by the unit's own coarse spread constraints, and by those of others that count it.
type tally struct{ own, others int }

func (u *unit) tally(where site) tally {
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
