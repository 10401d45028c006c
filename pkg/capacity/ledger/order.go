package ledger

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Maps have no order. Whatever leaves the ledger in a row, or depends on which comes first, goes by the order in which pods and nodes came
// to the ledger: the same events have the same effects in the same order, and of pods that are alike in everything the first one stays
// the first, however often it has waited.

// add takes down a pod that was not known.
func (l *Ledger) add(ref capacity.PodRef, c *capacity.Class) *pod {
	l.arrivals++
	p := &pod{ref: ref, class: l.class(c), owner: ownerOf(c), arrival: l.arrivals}
	p.class.pods++
	l.pods[ref.UID] = p
	return p
}

// remove forgets a pod that is to have nothing any more.
func (l *Ledger) remove(p *pod) {
	delete(l.pods, p.ref.UID)
	p.class.pods--
	l.forget(p.class)
}

// podsIn gives the pods of which is says so, in the order in which they came. One that is concerned by what was done to another before it
// is asked again.
func (l *Ledger) podsIn(is func(*pod) bool) iter.Seq[*pod] {
	var found []*pod
	for _, p := range l.pods {
		if is(p) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, byArrival)
	return func(yield func(*pod) bool) {
		for _, p := range found {
			if l.pods[p.ref.UID] == p && is(p) && !yield(p) {
				return
			}
		}
	}
}

// nodesIn is podsIn for nodes.
func (l *Ledger) nodesIn(is func(*node) bool) iter.Seq[*node] {
	var found []*node
	for _, n := range l.nodes {
		if is(n) {
			found = append(found, n)
		}
	}
	slices.SortFunc(found, func(a, b *node) int { return cmp.Compare(a.arrival, b.arrival) })
	return func(yield func(*node) bool) {
		for _, n := range found {
			if l.nodes[n.key] == n && is(n) && !yield(n) {
				return
			}
		}
	}
}

func byArrival(a, b *pod) int { return cmp.Compare(a.arrival, b.arrival) }

// byWait sorts pods that wait since different times, and those that have waited as long by their arrival: after a failure they all begin
// to wait anew at the same moment.
func byWait(a, b Waiting) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.arrival, b.arrival))
}
