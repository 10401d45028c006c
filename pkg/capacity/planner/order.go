package planner

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/topology"
	"slices"
)

// binding is n pods of a batch bound to a node, one after the other.
type binding struct {
	podBatch *podBatch
	node     *node
	n        int
}

// order returns the placements in an order in which each one is legal if all nodes exist from the start. If some placements never become
// legal in the order of the batches, it tries again with their batches first: a pod whose own constraint limits the other pods on its node may have
// to be bound before them. Placements that never become legal are removed; learn finds out why.
func (r *run) order() []binding {
	out, queues := r.sequence(r.podBatches)
	if late := leftOut(queues); len(late) > 0 {
		first := slices.Clone(r.podBatches)
		slices.SortStableFunc(first, func(a, b *podBatch) int { return min(late[b], 1) - min(late[a], 1) })
		if _, other := r.sequence(first); total(leftOut(other)) >= total(late) {
			first = r.podBatches
		}
		out, queues = r.sequence(first)
	}
	for _, q := range queues {
		q.takeBack()
		r.tookBack = r.tookBack || q.podBatch.unordered > 0
	}
	r.reshape()
	return out
}

// sequence goes through the batches again and again, taking from each the placements that are legal by then, until no more become legal. It returns
// the placements in this order, and the queues with those that never became legal.
func (r *run) sequence(podBatches []*podBatch) ([]binding, []*queue) {
	r.ordering = true
	r.topo.Restore()
	for _, u := range r.podBatches {
		u.demandHard()
	}
	r.topo.Changes++
	for _, n := range r.nodes[r.existing:] {
		clear(n.present)
		if !n.gone {
			r.ascertain(n)
			r.register(n)
		}
	}
	var out []binding
	pending := make([]*queue, len(podBatches))
	for i, u := range podBatches {
		pending[i] = r.queueOf(u)
	}
	for progress := true; progress; {
		progress = false
		for _, q := range pending {
			before := len(out)
			out = r.drain(q, out)
			progress = progress || len(out) > before
		}
	}
	return out, pending
}

// leftOut returns how many pods of each batch have a placement that is left in the queues.
func leftOut(queues []*queue) map[*podBatch]int {
	out := map[*podBatch]int{}
	for _, q := range queues {
		for _, l := range q.places {
			for _, p := range l.waiting {
				out[q.podBatch] += p.n
			}
		}
	}
	return out
}

func total(of map[*podBatch]int) (n int) {
	for _, k := range of {
		n += k
	}
	return n
}

// queue holds a batch's placements that are not in the order yet.
type queue struct {
	podBatch *podBatch
	coarse   bool // its pods are counted by labels other than the host name
	places   []*line
}

// line holds placements on nodes with the same values for the labels that matter to the batch.
type line struct {
	waiting []placed
}

// done removes the placement at a position, which is mostly the first.
func (l *line) done(at int) {
	if at == 0 {
		l.waiting = l.waiting[1:]
		return
	}
	l.waiting = slices.Delete(l.waiting, at, at+1)
}

func (r *run) queueOf(u *podBatch) *queue {
	keys := u.CoarseKeys()
	q := &queue{podBatch: u, coarse: len(keys) > 0}
	index := map[string]*line{}
	for _, p := range merged(u.placed) {
		id := valuesOf(p.node, keys, r.label)
		l, ok := index[id]
		if !ok {
			l = &line{}
			index[id] = l
			q.places = append(q.places, l)
		}
		l.waiting = append(l.waiting, p)
	}
	return q
}

// merged joins placements on the same node.
func merged(all []placed) []placed {
	at := map[*node]int{}
	var out []placed
	for _, p := range all {
		if i, ok := at[p.node]; ok {
			out[i].n += p.n
			continue
		}
		at[p.node] = len(out)
		out = append(out, p)
	}
	return out
}

// drain appends the placements of a queue that are legal now.
func (r *run) drain(q *queue, out []binding) []binding {
	for {
		l, i := r.nextAllowed(q)
		if l == nil {
			return out
		}
		p := &l.waiting[i]
		k := p.n
		if q.coarse {
			k = 1
		}
		k = q.podBatch.RoomOn(p.node.index, k, r)
		r.tally(q.podBatch, p.node, k)
		if last := len(out) - 1; last >= 0 && out[last].podBatch == q.podBatch && out[last].node == p.node {
			out[last].n += k
		} else {
			out = append(out, binding{q.podBatch, p.node, k})
		}
		if p.n -= k; p.n == 0 {
			l.done(i)
		}
	}
}

// nextAllowed returns the line and position of the next placement, in the domain with the fewest pods in which one is legal; nil: none is.
func (r *run) nextAllowed(q *queue) (*line, int) {
	var best *line
	bestAt, bestTally := 0, topology.Tally{}
	for _, l := range q.places {
		if len(l.waiting) == 0 {
			continue
		}
		n := l.waiting[0].node
		where := n.sure
		if !n.planned() {
			where = r.nodeSites[n.index]
		}
		if q.coarse && !q.podBatch.Allows(where) {
			continue
		}
		c := q.podBatch.Tally(where)
		if best != nil && !c.Less(bestTally) {
			continue
		}
		for i, p := range l.waiting {
			if q.podBatch.RoomOn(p.node.index, 1, r) > 0 {
				best, bestAt, bestTally = l, i, c
				break
			}
		}
	}
	return best, bestAt
}

// takeBack removes the placements that are left in the queue, which never became legal.
func (q *queue) takeBack() {
	for _, l := range q.places {
		for _, p := range l.waiting {
			p.node.drop(q.podBatch, p.n)
			q.podBatch.left += p.n
			q.podBatch.unordered += p.n
		}
	}
}

// reshape chooses the offerings of nodes that have lost pods anew, since cheaper ones may do for the rest. The
// labels that the node's pods depend on stay the same.
func (r *run) reshape() {
	for _, n := range r.nodes[r.existing:] {
		if n.gone || !n.lost {
			continue
		}
		limited := r.catalog.Limited(r.catalog.Pools[r.catalog.Candidates[n.candidate].Pool])
		if s := r.shape(n, limited); s.short == "" {
			if s, ok := r.reshapeIn(n, s); ok {
				n.shape = s
			}
		}
	}
}

// drop removes k pods of a batch from the node. A planned node without pods is not bought.
func (n *node) drop(u *podBatch, k int) {
	for i := range n.content {
		if s := &n.content[i]; s.podBatch == u {
			take := min(k, s.n)
			s.n -= take
			k -= take
		}
	}
	n.content = slices.DeleteFunc(n.content, func(s share) bool { return s.n == 0 })
	n.lost = true
	n.gone = n.gone || n.planned() && len(n.content) == 0
}
