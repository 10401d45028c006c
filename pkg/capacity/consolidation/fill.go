package consolidation

import (
	"cmp"
	"math"
	"slices"
)

// compared is how many fitting nodes are compared for a pod.
const compared = 32

// receivers are the nodes that may get pods, in the order in which they are tried: those that stay whatever happens, then by the part of
// the price that is wasted. Capacity only shrinks while a plan is made, so a node that has none left for a kind, or takes none, leaves the
// kind's list.
type receivers struct {
	c     *cluster
	order []int32
	// next links, by kind, the positions in order that may have capacity; position 0 is before the first node. nil: not needed yet.
	next [][]int32
	last []int32 // the last position that is linked

	// stamp marks nodes of the trial that is being made: excluded are those that it empties, touched those that it has put pods on.
	stamp             int32
	excluded, touched []int32
	window            []int32 // positions, reused
}

func newReceivers(c *cluster, order []int32) *receivers {
	r := &receivers{c: c, order: append([]int32{-1}, order...), next: make([][]int32, len(c.kinds.all)), last: make([]int32, len(c.kinds.all))}
	r.excluded, r.touched = make([]int32, len(c.nodes)), make([]int32, len(c.nodes))
	return r
}

// receiverOrder returns the nodes that may get pods in order.
func (c *cluster) receiverOrder() []int32 {
	var out []int32
	rank := make([]float64, len(c.nodes))
	for i := range c.nodes {
		n := &c.nodes[i]
		if n.gone || n.closed {
			continue
		}
		out = append(out, int32(i))
		switch {
		case n.view != nil && !c.mayEverGo(n), n.price <= 0:
			rank[i] = math.Inf(-1)
		default:
			rank[i] = c.waste(n) / n.price
		}
	}
	slices.SortStableFunc(out, func(a, b int32) int { return cmp.Compare(rank[a], rank[b]) })
	return out
}

// mayEverGo reports whether the node can be emptied some time, as far as is known.
func (c *cluster) mayEverGo(n *node) bool {
	if n.c == nil || !known(n.c.Price) {
		return false
	}
	if p, ok := c.policy(n.c); !ok || p.Consolidate == WhenEmpty {
		return false
	}
	return n.c.Blocked == nil || !n.c.Blocked.Until.IsZero() || n.c.Blocked.Kind != Protected && n.c.Blocked.Kind != Unmovable && n.c.Blocked.Kind != Static
}

// add appends a new node.
func (r *receivers) add(at int32) {
	r.order = append(r.order, at)
	r.excluded, r.touched = append(r.excluded, -1), append(r.touched, -1)
	position := int32(len(r.order) - 1)
	for kind, next := range r.next {
		if next != nil {
			r.next[kind] = append(next, 0)
			r.next[kind][r.last[kind]] = position
			r.last[kind] = position
		}
	}
}

// list returns a kind's links: all positions, until fill finds which nodes take no pods of the kind.
func (r *receivers) list(kind int32) []int32 {
	if r.next[kind] == nil {
		next := make([]int32, len(r.order))
		for i := range next[:len(next)-1] {
			next[i] = int32(i) + 1
		}
		r.next[kind], r.last[kind] = next, int32(len(next)-1)
	}
	return r.next[kind]
}

// begin begins a trial that empties these nodes.
func (r *receivers) begin(from []int32) {
	r.stamp++
	for _, at := range from {
		r.excluded[at] = r.stamp
	}
}

// place is pods that a trial puts on a node.
type place struct{ at, kind, n int32 }

// fill puts pods of a kind on existing capacity, appends where to log, and returns how many are left over. join reports whether the pods
// may share a move with those of a new node; nil: any.
func (r *receivers) fill(s share, log []place, join func(at int32) bool) ([]place, int32) {
	kind := &r.c.kinds.all[s.kind]
	if kind.fixed {
		return log, s.n
	}
	next := r.list(s.kind)
	before, left := int32(0), s.n
	r.window = r.window[:0]
	for left > 0 {
		for len(r.window) < compared {
			position := next[before]
			if position == 0 {
				break
			}
			at := r.order[position]
			n := &r.c.nodes[at]
			if !fits(n.free, kind.need) || !r.c.admits(s.kind, at) {
				if !n.gone && r.touched[at] == r.stamp { // this trial alone may have filled it
					before = position
					continue
				}
				next[before] = next[position]
				if r.last[s.kind] == position {
					r.last[s.kind] = before
				}
				continue
			}
			before = position
			if r.excluded[at] == r.stamp || n.view == nil && join != nil && !join(at) || r.c.besides(s.kind, n, 1) == 0 {
				continue
			}
			r.window = append(r.window, at)
		}
		if len(r.window) == 0 {
			break
		}
		i := r.best(kind)
		at := r.window[i]
		r.c.put(at, s.kind, 1)
		r.touched[at] = r.stamp
		if last := len(log) - 1; last >= 0 && log[last].at == at && log[last].kind == s.kind {
			log[last].n++
		} else {
			log = append(log, place{at, s.kind, 1})
		}
		left--
		if !fits(r.c.nodes[at].free, kind.need) || r.c.besides(s.kind, &r.c.nodes[at], 1) == 0 {
			r.window = slices.Delete(r.window, i, i+1)
		}
	}
	return log, left
}

// best returns which node of the window is left best balanced and fullest by another pod of the kind.
func (r *receivers) best(k *kind) int {
	if len(r.window) == 1 {
		return 0
	}
	best, least := 0, math.Inf(1)
	for i, at := range r.window {
		n := &r.c.nodes[at]
		cpu, memory := part(n, k, r.c.cpu), part(n, k, r.c.memory)
		if x := math.Abs(cpu-memory) + 0.2*(cpu+memory); x < least {
			best, least = i, x
		}
	}
	return best
}

// part returns the part of a node's capacity that is free after a pod of the kind is put there.
func part(n *node, k *kind, d int) float64 {
	if d < 0 || n.size[d] <= 0 {
		return 0
	}
	return float64(n.free[d]-k.need[d]) / float64(n.size[d])
}

// undo takes back what a trial has put.
func (r *receivers) undo(log []place) {
	for _, p := range log {
		r.c.put(p.at, p.kind, -p.n)
	}
}
