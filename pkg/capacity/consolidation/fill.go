package consolidation

import (
	"cmp"
	"math"
	"slices"
)

// compared is how many fitting nodes are compared for a pod.
const compared = 32

// receivers are the nodes that may get pods, in the order in which they are tried: first those that can never be emptied, then the others,
// those first whose pods are worth most of their price. Capacity only shrinks while a plan is made, so a node that has none left for a
// kind, or takes none, leaves the kind's list.
type receivers struct {
	c     *cluster
	order []int32
	free  [][]int64 // of the nodes in order
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
	r.free = make([][]int64, 1, len(r.order))
	numbers := make([]int64, 0, len(order)*c.kinds.dims.Len())
	for _, at := range order { // list reads one after another
		n, from := &c.nodes[at], len(numbers)
		numbers = append(numbers, n.free...)
		n.free = numbers[from:len(numbers):len(numbers)]
		r.free = append(r.free, n.free)
	}
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
	r.order, r.free = append(r.order, at), append(r.free, r.c.nodes[at].free)
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

// list returns a kind's links: in the beginning, to the nodes that have capacity now, or that only this trial may have filled.
func (r *receivers) list(kind int32) []int32 {
	if r.next[kind] == nil {
		next, last, need := make([]int32, len(r.order)), int32(0), r.c.kinds.all[kind].need
		for i := int32(1); i < int32(len(next)); i++ {
			if at := r.order[i]; fits(r.free[i], need) && r.c.admits(kind, at) || r.touched[at] == r.stamp {
				next[last], last = i, i
			}
		}
		r.next[kind], r.last[kind] = next, last
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

// homeless appends the pods for whose kinds it is known that no existing node has capacity: fill would leave them over.
func (r *receivers) homeless(pods, log []share) []share {
	for _, s := range pods {
		if r.c.kinds.all[s.kind].fixed || r.next[s.kind] != nil && r.exhausted(r.next[s.kind]) {
			log = append(log, s)
		}
	}
	return log
}

// exhausted reports whether a kind's list has no other nodes than those that the trial empties.
func (r *receivers) exhausted(next []int32) bool {
	for position := next[0]; position != 0; position = next[position] {
		if r.excluded[r.order[position]] != r.stamp {
			return false
		}
	}
	return true
}

// undo takes back what a trial has put.
func (r *receivers) undo(log []place) {
	for _, p := range log {
		r.c.put(p.at, p.kind, -p.n)
	}
}
