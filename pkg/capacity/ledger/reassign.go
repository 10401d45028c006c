package ledger

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Releasable are the pods that wait for a node and would be served as well by any other room, in the order in which they wait.
// Pods that are joined with others by a group have to go together and are not among them. launched: those whose machine has
// been launched, too, though it may then come for nobody.
func (l *Ledger) Releasable(launched bool) []Waiting {
	var out []Waiting
	for _, c := range l.classes {
		n := 0
		for _, s := range c.slots {
			if s.releasable(launched) {
				n++
			}
		}
		for _, p := range c.waiting[:min(n, len(c.waiting))] {
			out = append(out, Waiting{Ref: p.ref, Class: c.Class, Since: p.since, arrival: p.arrival})
		}
	}
	slices.SortFunc(out, byWait)
	return out
}

// Waits says whether Releasable is worth asking.
func (l *Ledger) Waits(launched bool) bool {
	releasable := func(s *slot) bool { return s.releasable(launched) }
	for _, c := range l.classes {
		if len(c.waiting) > 0 && slices.ContainsFunc(c.slots, releasable) {
			return true
		}
	}
	return false
}

// releasable says that a pod of the class can give the slot up: it can't be used yet, and stands alone.
func (s *slot) releasable(launched bool) bool {
	return !s.ready && s.pod == nil && s.owner == "" && s.group == nil && (launched || !s.node.launched)
}

// Reassign books other room for pods that wait for a node, and for each gives up a slot of its class: one on a claim that was
// not launched yet rather than another, which may save the launch, and the last in plan order. Of the pods of a class, those
// that have waited longest go first. Pods that wait no more, and pods without such a slot, get nothing. launched as in
// Releasable.
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
	var nodes []*node // in the plan's order
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

// surplus is the slot to give up for room on other nodes.
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
