package ledger

import (
	"cmp"
	"iter"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/pieces"
)

// Maps have no order. Where the order of results matters, or which of several comes first, the ledger uses the order in which pods and
// nodes were added to it: the same events have the same effects in the same order, and of pods that are otherwise equal the oldest stays
// first, however often it has waited.

// add adds a pod that the ledger doesn't know.
func (l *Ledger) add(ref capacity.PodRef, c *capacity.Class) *pod {
	l.arrivals++
	p := &pod{ref: ref, class: l.class(c), arrival: l.arrivals}
	p.owner, p.deployment = ownersOf(c)
	p.class.pods++
	l.pods[ref.UID] = p
	l.everyPod.Add(p)
	return p
}

// become changes the state of a pod.
func (l *Ledger) become(p *pod, s State) {
	p.unlist()
	if p.state == Queued {
		n := len(l.queued) - 1
		l.queued[p.at], l.queued[n].at = l.queued[n], p.at
		l.queued = slices.Delete(l.queued, n, n+1)
	}
	if p.state = s; s == Queued {
		p.at, l.queued = len(l.queued), append(l.queued, p)
	}
	p.list()
}

// list puts the pod on the list of its class that is for its state, if there is one, and unlist removes it. Call unlist before the class or the
// slot changes.
func (p *pod) list() {
	switch {
	case p.state == Queued:
		p.class.queued[p] = true
	case p.state == Refused:
		p.class.refusedPods[p] = true
	case p.state == Open && p.slot == nil:
		p.class.open = pieces.Insert(p.class.open, p, bySince)
	}
}

func (p *pod) unlist() {
	delete(p.class.queued, p)
	delete(p.class.refusedPods, p)
	if p.state == Open && p.slot == nil {
		p.class.open = pieces.Remove(p.class.open, p, bySince)
	}
}

// remove forgets a pod whose entitlement has ended.
func (l *Ledger) remove(p *pod) {
	delete(l.pods, p.ref.UID)
	l.become(p, Unknown)
	p.removed = true
	p.class.pods--
	l.forget(p.class)
}

// podsIn returns the pods for which is returns true, in the order in which they were added. It asks is again before it yields each pod,
// because what was done to an earlier one may have changed the answer.
func (l *Ledger) podsIn(is func(*pod) bool) iter.Seq[*pod] {
	return l.among(pieces.Found(l.pods, is, byArrival), is)
}

// among yields, in their order, those of the found pods that the ledger still has and for which is still returns true.
func (l *Ledger) among(found []*pod, is func(*pod) bool) iter.Seq[*pod] {
	return pieces.Still(found, func(p *pod) bool { return l.pods[p.ref.UID] == p && is(p) })
}

// nodesIn is podsIn for nodes.
func (l *Ledger) nodesIn(is func(*node) bool) iter.Seq[*node] {
	return l.amongNodes(pieces.Found(l.nodes, is, func(a, b *node) int { return cmp.Compare(a.arrival, b.arrival) }), is)
}

func (l *Ledger) amongNodes(found []*node, is func(*node) bool) iter.Seq[*node] {
	return pieces.Still(found, func(n *node) bool { return l.nodes[n.key] == n && is(n) })
}

func byArrival(a, b *pod) int { return cmp.Compare(a.arrival, b.arrival) }

// bySince is the order in which pods began to wait.
func bySince(a, b *pod) int { return cmp.Or(a.since.Compare(b.since), byArrival(a, b)) }

// InOrder sorts pods by the time since which they wait, then by arrival: after a failure all of them start to wait at the same moment.
func InOrder(pods []Waiting) []Waiting {
	slices.SortFunc(pods, func(a, b Waiting) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.arrival, b.arrival)) })
	return pods
}
