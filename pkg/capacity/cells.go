package capacity

import (
	"math"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// cell is the bins of a unit that are alike for the labels over which its pods are counted.
type cell struct {
	bins  packing.Bits
	first int // a bin of it
	// cost is the least a pod costs there when it shares its node perfectly.
	cost float64
	n    int // pods assigned
}

// cells splits a unit's bins by the values of the keys, in order of the bins.
func (r *run) cells(u *unit, bins packing.Bits, keys []string) []*cell {
	var out []*cell
	index := map[string]*cell{}
	var id strings.Builder
	for b := range r.catalog.bins {
		if !bins.Has(b) || packing.Fits(r.catalog.roomOf(b), u.need, 1) == 0 {
			continue
		}
		id.Reset()
		for _, key := range keys {
			v, ok := r.catalog.label(b, key)
			id.WriteString(v)
			if !ok {
				id.WriteByte(1)
			}
			id.WriteByte(0)
		}
		c, ok := index[id.String()]
		if !ok {
			c = &cell{bins: packing.NewBits(len(r.catalog.bins)), first: b, cost: math.Inf(1)}
			index[id.String()] = c
			out = append(out, c)
		}
		c.bins.Set(b)
		c.cost = min(c.cost, r.shareCost(u, b))
	}
	return out
}

// shareCost is what a pod's dominant share of the bin costs.
func (r *run) shareCost(u *unit, b int) float64 {
	share := 0.0
	for d, n := range u.need {
		if room := r.catalog.roomOf(b)[d]; n > 0 && room != packing.Unlimited {
			share = max(share, float64(n)/float64(room))
		}
	}
	return share * r.catalog.bins[b].price
}

// assign decides for each pod of the unit that is left in which cell it shall be, so that spread, affinity and
// anti-affinity hold over all pods placed and assigned. Assigned pods are counted; unassign takes that back.
func (r *run) assign(u *unit, cells []*cell, most int) {
	for range most {
		var best *cell
		bestScore := 0
		for _, c := range cells {
			where := r.whereBought(c.first)
			if !r.coarseAllows(u, where) {
				continue
			}
			score := u.crowd(where)
			if best == nil || score < bestScore || score == bestScore && c.cost < best.cost {
				best, bestScore = c, score
			}
		}
		if best == nil {
			return
		}
		best.n++
		r.assumed = append(r.assumed, assumption{u, best.first})
		r.assume(u, best.first, 1)
	}
}

// assumption is a pod counted in a cell, though no node is there yet.
type assumption struct {
	unit *unit
	bin  int
}

func (r *run) assume(u *unit, b, n int) {
	where := r.whereBought(b)
	for _, g := range u.member {
		if g.host || g.filter != nil && !r.countsBin(g, b) {
			continue
		}
		if d, ok := where(g); ok {
			g.add(d, n)
			if g.filter != nil {
				if g.nodes[d] += n; g.nodes[d] == 0 {
					delete(g.nodes, d)
				}
			}
		}
	}
	for i := range u.all {
		o := &u.all[i]
		if o.group.host {
			continue
		}
		d, ok := where(o.group)
		if !ok {
			continue
		}
		if o.kind == antiAffinity && o.hard() {
			o.group.owners[d] += n
		}
	}
}

// unassume takes back what assign has counted.
func (r *run) unassume() {
	for _, a := range r.assumed {
		r.assume(a.unit, a.bin, -1)
	}
	r.assumed = r.assumed[:0]
}

func (r *run) whereBought(b int) at {
	return func(g *group) (int, bool) {
		v, ok := r.catalog.label(b, g.key)
		if !ok {
			return 0, false
		}
		return r.topo.domain(g.key, v), true
	}
}
