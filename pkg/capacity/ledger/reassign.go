package ledger

import (
	"iter"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Releasable returns the pods that wait for a node and could use any other capacity as well, those that have waited longest first. Pods
// whose slots belong to a group have to be scheduled together and are not among them. launched includes pods whose instance has been
// launched, although it may then stay unused.
func (l *Ledger) Releasable(launched bool) []Waiting {
	var out []Waiting
	slots := map[*class]int{}
	for s := range l.releasable(launched) {
		slots[s.class]++
	}
	for c, n := range slots {
		for _, p := range c.waiting[:min(n, len(c.waiting))] {
			out = append(out, Waiting{Ref: p.ref, Class: c.Class, Since: p.since, arrival: p.arrival})
		}
	}
	return InOrder(out)
}

// Waits reports whether Releasable would return any pods.
func (l *Ledger) Waits(launched bool) bool {
	for s := range l.releasable(launched) {
		if len(s.class.waiting) > 0 {
			return true
		}
	}
	return false
}

// releasable yields the slots that can be dropped for one elsewhere.
func (l *Ledger) releasable(launched bool) iter.Seq[*slot] {
	return func(yield func(*slot) bool) {
		for _, n := range l.nodes {
			if n.launched && !launched {
				continue
			}
			for _, s := range n.slots {
				if s.releasable(launched) && !yield(s) {
					return
				}
			}
		}
	}
}

// releasable reports whether the slot can be dropped for one elsewhere: it isn't ready, no certain pod or owner has it, and it belongs to no group.
func (s *slot) releasable(launched bool) bool {
	return !s.ready && !s.behind && s.pod == nil && s.owner == "" && s.group == nil && (launched || !s.node.launched)
}

// Reassign reserves other capacity for pods that wait for a node. For each of them it drops a slot of the pod's class, preferably one on
// a claim that was not launched yet, which may save the launch, and among these the last in plan order. Within a class, the pods that
// have waited longest are moved first. Pods that no longer wait, and pods of a class without such a slot, get nothing. launched: slots on launched
// instances may be dropped, too, although these may then stay unused.
func (l *Ledger) Reassign(placements []capacity.Placement, launched bool) {
	onto := map[*node]bool{}
	for _, pl := range placements {
		onto[l.node(pl.Node)] = true
	}
	var kept []capacity.Placement
	for _, pl := range placements {
		p := l.pods[pl.Pod.UID]
		if p == nil || p.state != Planned || l.node(pl.Node).fenced {
			continue
		}
		if s := p.class.surplus(onto, launched); s != nil {
			l.drop(s)
			kept = append(kept, pl)
		}
	}
	var nodes []*node // in the order of the plan
	for _, pl := range kept {
		l.seq++
		n := l.node(pl.Node)
		l.book(l.pods[pl.Pod.UID].class, n, nil, l.seq)
		if !slices.Contains(nodes, n) {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		l.openNode(n)
	}
	l.tidyAll(placements)
}

// surplus returns the slot to drop in exchange for capacity on the nodes in onto; it is never on one of these.
func (c *class) surplus(onto map[*node]bool, launched bool) *slot {
	var out *slot
	for _, s := range slices.Backward(c.slots) {
		switch {
		case !s.releasable(launched) || onto[s.node]:
		case !s.node.launched:
			return s
		case out == nil:
			out = s
		}
	}
	return out
}
