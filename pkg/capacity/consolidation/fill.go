package consolidation

import (
	"cmp"
	"math"
	"slices"
)

// compared is how many fitting nodes are compared for a pod.
const compared = 32

// receivers are the nodes that may get pods, in the order in which they are tried: first those that can never be emptied, then the others by
// the part of their price that their pods are worth, the largest first. Capacity only shrinks while a plan is made, so a node that has none left
// for a kind, or takes none, leaves the kind's line for good.
//
// A trial reads the first nodes of a line for each kind of its pods, and leaves everything as it was; a plan makes thousands of trials, and
// only those that are carried out change a few nodes each. A line therefore keeps what it knows of a node until that node changes.
type receivers struct {
	c     *cluster
	order []int32
	// free is what the nodes in order have free, by node and dimension, without counting what the present trial has put there. most is, by
	// block and dimension, the most that a node of the block had free in the beginning.
	free, most []int64
	blocks     int
	lines      []*line // by kind; nil: not needed yet
	marks      []mark  // by node

	stamp  int32    // number of the trial that is being made
	window []choice // the nodes that are compared; its memory is reused
}

// block is how many nodes can be passed over at once if a pod fits none of them.
const block = 16

// mark is what has happened to a node.
type mark struct {
	// position is the node's place in order; -1: it has none.
	position int32
	// changed counts how often the plan has changed the node.
	changed int32
	// excluded is the number (receivers.stamp) of the last trial that emptied the node, touched that of the last one that put pods on it.
	excluded, touched int32
}

// line is the nodes that may have capacity for pods of a kind, in order, as far as they have been looked at.
type line struct {
	nodes []choice
	next  int // the position in the receivers' order that is looked at next
	begun int // how many receivers there were when the line was begun; later ones are appended without a check, which look makes
}

// choice is a node's place in a line, or among those that are compared.
type choice struct {
	at int32
	// version is the node's mark.changed at the time when score was computed; -1: it hasn't been.
	version int32
	// score is how badly balanced and empty another pod of the kind leaves the node.
	score float64
}

func newReceivers(c *cluster, order []int32) *receivers {
	dims := c.kinds.dims.Len()
	r := &receivers{c: c, order: order, blocks: len(order) / block, lines: make([]*line, len(c.kinds.all)), marks: make([]mark, len(c.nodes), cap(c.nodes))}
	for i := range r.marks {
		r.marks[i].position = -1
	}
	r.free, r.most = make([]int64, 0, len(order)*dims), make([]int64, r.blocks*dims)
	for i, at := range order {
		r.marks[at].position = int32(i)
		free := c.nodes[at].free
		r.free = append(r.free, free...)
		if most := r.most[min(i/block, r.blocks)*dims:]; i/block < r.blocks {
			for d, v := range free {
				most[d] = max(most[d], v)
			}
		}
	}
	return r
}

// receiverOrder returns the nodes that may get pods in order.
func (c *cluster) receiverOrder() []int32 {
	out := make([]int32, 0, len(c.nodes))
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
	slices.SortFunc(out, func(a, b int32) int { return cmp.Or(cmp.Compare(rank[a], rank[b]), cmp.Compare(a, b)) })
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
	r.marks = append(r.marks, mark{position: int32(len(r.order))})
	r.order, r.free = append(r.order, at), append(r.free, r.c.nodes[at].free...)
}

// changed says that the plan has changed a node.
func (r *receivers) changed(at int32) {
	m := &r.marks[at]
	m.changed++
	if free := r.c.nodes[at].free; m.position >= 0 {
		copy(r.free[int(m.position)*len(free):], free)
	}
}

// begin begins a trial that empties these nodes.
func (r *receivers) begin(from []int32) {
	r.stamp++
	for _, at := range from {
		r.marks[at].excluded = r.stamp
	}
}

// line returns a kind's line.
func (r *receivers) line(kind int32) *line {
	if r.lines[kind] == nil {
		r.lines[kind] = &line{begun: len(r.order)}
	}
	return r.lines[kind]
}

// extend appends the next node that has capacity, apart from what this trial has put there, to a kind's line. It returns false if there is
// none.
func (r *receivers) extend(l *line, kind int32) bool {
	need := r.c.kinds.all[kind].need
	dims := len(need)
	for l.next < len(r.order) {
		i := l.next
		if i%block == 0 && i/block < r.blocks && !fits(r.most[i/block*dims:][:dims], need) {
			l.next += block
			continue
		}
		l.next++
		if at := r.order[i]; i >= l.begun || fits(r.free[i*dims:][:dims], need) && r.c.admits(kind, at) {
			l.nodes = append(l.nodes, choice{at: at, version: -1})
			return true
		}
	}
	return false
}

// place is pods that a trial puts on a node.
type place struct{ at, kind, n int32 }

// fill puts pods of a kind on existing capacity, appends to log where, and returns how many are left over. join reports whether the pods may go
// to a new node of the plan, which makes one move of the move that empties their node and the one that launches the new node; nil: they may.
func (r *receivers) fill(s share, log []place, join func(at int32) bool) ([]place, int32) {
	kind := &r.c.kinds.all[s.kind]
	if kind.fixed {
		return log, s.n
	}
	l, left, looked := r.line(s.kind), s.n, 0
	r.window = r.window[:0]
	for left > 0 {
		for len(r.window) < compared && (looked < len(l.nodes) || r.extend(l, s.kind)) {
			looked = r.look(l, looked, s.kind, join)
		}
		if len(r.window) == 0 {
			break
		}
		i := best(r.window)
		at := r.window[i].at
		r.c.put(at, s.kind, 1)
		r.marks[at].touched = r.stamp
		if last := len(log) - 1; last >= 0 && log[last].at == at && log[last].kind == s.kind {
			log[last].n++
		} else {
			log = append(log, place{at, s.kind, 1})
		}
		left--
		if n := &r.c.nodes[at]; !fits(n.free, kind.need) || r.c.besides(s.kind, n, 1) == 0 {
			r.window = slices.Delete(r.window, i, i+1)
		} else {
			r.window[i].score = r.c.score(n, kind)
		}
	}
	return log, left
}

// look appends the i-th node of a kind's line to those that are compared, if it takes a pod. It returns the index of the next one.
func (r *receivers) look(l *line, i int, kind int32, join func(at int32) bool) (next int) {
	x := &l.nodes[i]
	m, k := &r.marks[x.at], &r.c.kinds.all[kind]
	score := x.score
	if touched := m.touched == r.stamp; touched || m.changed != x.version {
		n := &r.c.nodes[x.at]
		if !fits(n.free, k.need) || !r.c.admits(kind, x.at) {
			if touched && !n.gone { // this trial alone may have filled it
				return i + 1
			}
			l.nodes = slices.Delete(l.nodes, i, i+1)
			return i
		}
		score = r.c.score(n, k)
		if !touched {
			x.version, x.score = m.changed, score
		}
	}
	if m.excluded == r.stamp || int(x.at) >= r.c.existing && join != nil && !join(x.at) || k.special() && r.c.besides(kind, &r.c.nodes[x.at], 1) == 0 {
		return i + 1
	}
	r.window = append(r.window, choice{at: x.at, score: score})
	return i + 1
}

// best returns the index of the node that is best balanced and fullest with another pod.
func best(window []choice) int {
	best, least := 0, math.Inf(1)
	for i := range window {
		if x := window[i].score; x < least {
			best, least = i, x
		}
	}
	return best
}

// score returns how badly balanced and empty another pod of the kind leaves the node.
func (c *cluster) score(n *node, k *kind) float64 {
	cpu, memory := part(n, k, c.balancedBy[0]), part(n, k, c.balancedBy[1])
	return math.Abs(cpu-memory) + 0.2*(cpu+memory)
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
		if r.c.kinds.all[s.kind].fixed || r.lines[s.kind] != nil && r.exhausted(s.kind) {
			log = append(log, s)
		}
	}
	return log
}

// exhausted reports whether a kind's line has no other nodes than those that the trial empties.
func (r *receivers) exhausted(kind int32) bool {
	l := r.lines[kind]
	for i := 0; i < len(l.nodes) || r.extend(l, kind); i++ {
		if r.marks[l.nodes[i].at].excluded != r.stamp {
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
