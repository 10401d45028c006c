package ledger

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// ownerHold is how long room is held for pods that are certain to come.
const ownerHold = 10 * time.Second

// Commit books a plan's placements. Nodes that are to be bought were added before (AddNode); placements name them by
// claim. Pods that are no longer queued (they ended, or were bound meanwhile) get nothing. plan makes group ids unique
// across plans. A placement on a claim that has ended since the plan was made, or on a node that was fenced, is not booked, nor
// is what is joined to it: their pods stay queued.
func (l *Ledger) Commit(plan string, placements []capacity.Placement, now time.Time) {
	l.commit(plan, placements, nil, now)
}

// commit books placements; those of an owner are held for holds[i], or for pods that are about to come when holds is nil.
func (l *Ledger) commit(plan string, placements []capacity.Placement, holds []hold, now time.Time) {
	fallen := l.fallen(placements)
	come := l.come(placements)
	groups := map[int]*group{}
	var joined []*group // in the plan's order, as the nodes are
	var nodes []*node
	for i, pl := range placements {
		var p *pod
		if fallen != nil && fallen(pl) {
			continue
		}
		if pl.Owner == "" {
			p = l.pods[pl.Pod.UID]
			if p == nil || p.state != Queued {
				continue
			}
		} else if k := (expected{pl.Class.Key, pl.Owner}); holds == nil && len(come[k]) > 0 {
			p, come[k] = come[k][0], come[k][1:]
		}
		var g *group
		if pl.Group != 0 {
			if g = groups[pl.Group]; g == nil {
				g = &group{id: fmt.Sprintf("%s/%d", plan, pl.Group), since: now}
				groups[pl.Group] = g
				joined = append(joined, g)
			}
		}
		l.seq++
		s := l.book(l.class(pl.Class), l.node(pl.Node), g, l.seq)
		if p == nil {
			l.hold(s, pl.Owner)
			s.until = now.Add(ownerHold)
			if holds != nil {
				s.leaving, s.until = holds[i].leaving, holds[i].until
			}
		} else {
			l.reclass(p, pl.Class)
			l.plan(p, s, now)
		}
		if !slices.Contains(nodes, s.node) {
			nodes = append(nodes, s.node)
		}
	}
	for _, g := range joined {
		l.openGroup(g)
	}
	for _, n := range nodes {
		l.openNode(n)
	}
	l.tidyAll(placements)
	// A node whose pods have all gone since is never launched: left on the books, others would be planned on it and wait for
	// ever.
	for n := range l.nodesIn(func(n *node) bool { return n.claim != "" && !n.launched && !n.cached && len(n.slots) == 0 }) {
		l.tidy(n)
	}
}

// expected is who room is held for.
type expected struct {
	class capacity.ClassKey
	owner types.UID
}

// come are the queued pods that a plan holds room for without knowing them: they were created while it was made. In the order in
// which they came.
func (l *Ledger) come(placements []capacity.Placement) map[expected][]*pod {
	held, named := map[expected]bool{}, map[types.UID]bool{}
	for _, pl := range placements {
		if pl.Owner != "" {
			held[expected{pl.Class.Key, pl.Owner}] = true
		} else {
			named[pl.Pod.UID] = true
		}
	}
	if len(held) == 0 {
		return nil
	}
	out := map[expected][]*pod{}
	for _, w := range l.QueuedPods() {
		if k := (expected{w.Class.Key, l.pods[w.Ref.UID].owner}); held[k] && !named[w.Ref.UID] {
			out[k] = append(out[k], l.pods[w.Ref.UID])
		}
	}
	return out
}

// tidyAll forgets the existing nodes of a plan on which nothing was booked in the end.
func (l *Ledger) tidyAll(placements []capacity.Placement) {
	for _, pl := range placements {
		if n, ok := l.byName[pl.Node]; ok {
			l.tidy(n)
		}
	}
}

// fallen says which placements are on nodes that the ledger has no more or that are being removed, or joined to such a one;
// nil: none.
func (l *Ledger) fallen(placements []capacity.Placement) func(capacity.Placement) bool {
	gone, groups := map[string]bool{}, map[int]bool{}
	for _, pl := range placements {
		if n := l.find(pl.Node); n == nil || n.fenced {
			gone[pl.Node], groups[pl.Group] = true, true
		}
	}
	if len(gone) == 0 {
		return nil
	}
	delete(groups, 0)
	l.out.Plan = true
	return func(pl capacity.Placement) bool { return gone[pl.Node] || groups[pl.Group] }
}

func (l *Ledger) book(c *class, n *node, g *group, order int) *slot {
	s := &slot{class: c, node: n, order: order, group: g}
	c.insert(s)
	n.add(s)
	if g != nil {
		g.slots = append(g.slots, s)
	}
	return s
}

func (l *Ledger) plan(p *pod, s *slot, now time.Time) {
	p.state, p.since, p.why = Planned, now, waitReason(s)
	p.class.waiting = append(p.class.waiting, p)
}

// Slots are the claim's slots as they are recorded on it, in plan order. Which pod holds which slot of a class is not
// settled before its cycle: the record names as many entitled pods as there are slots.
func (l *Ledger) Slots(claim string) []capacity.Slot { return l.AllSlots([]string{claim})[claim] }

// AllSlots are the Slots of several claims. Whose slots they are is worked out once per class, which for one claim after the
// other would be most of the work.
func (l *Ledger) AllSlots(claims []string) map[string][]capacity.Slot {
	holders := map[*class]map[*slot]*pod{}
	out := make(map[string][]capacity.Slot, len(claims))
	for _, claim := range claims {
		if n, ok := l.nodes[claim]; ok {
			out[claim] = l.slotsOf(n, holders)
		}
	}
	return out
}

func (l *Ledger) slotsOf(n *node, holders map[*class]map[*slot]*pod) []capacity.Slot {
	var out []capacity.Slot
	for _, s := range n.slots {
		rec := capacity.Slot{Class: s.class.Key, Order: s.order, Owner: s.owner}
		if s.group != nil {
			rec.Group = s.group.id
		}
		if s.owner == "" {
			if holders[s.class] == nil {
				holders[s.class] = l.holders(s.class)
			}
			if p := holders[s.class][s]; p != nil {
				rec.Pod = p.ref
			}
		}
		out = append(out, rec)
	}
	return out
}

// holders gives each slot of the class that isn't held for an owner a pod: its own, or one that is entitled to a slot of
// its kind.
func (l *Ledger) holders(c *class) map[*slot]*pod {
	var open []*pod
	for _, p := range l.pods {
		if p.class == c && p.state == Open && p.slot == nil {
			open = append(open, p)
		}
	}
	slices.SortFunc(open, byArrival)
	entitled := append(open, c.waiting...)
	out := make(map[*slot]*pod, len(c.slots))
	for _, ready := range []bool{true, false} {
		for _, s := range c.slots {
			switch {
			case s.pod != nil:
				out[s] = s.pod
			case s.owner == "" && s.ready == ready && len(entitled) > 0:
				out[s], entitled = entitled[0], entitled[1:]
			}
		}
	}
	return out
}

// Restored is a slot read back from a claim after a restart, with its class as its living pod gives it.
type Restored struct {
	Slot  capacity.Slot
	Node  string // claim
	Class *capacity.Class
}

// Restore books slots read back from claims. It is called once, before any other event but AddNode; slots of pods that
// have ended are left out by the caller. A pod that more than one claim has a slot for was planned anew before the first claim's record
// had been written again: the later promise holds. orders is the highest order on record; what is planned from now on comes after it, so that
// this can be told after the next restart, too.
func (l *Ledger) Restore(slots []Restored, orders int, now time.Time) {
	l.seq = max(l.seq, orders)
	latest := map[types.UID]int{}
	for _, r := range slots {
		latest[r.Slot.Pod.UID] = max(latest[r.Slot.Pod.UID], r.Slot.Order)
	}
	slots = slices.DeleteFunc(slices.Clone(slots), func(r Restored) bool { return r.Slot.Order < latest[r.Slot.Pod.UID] })
	slices.SortStableFunc(slots, func(a, b Restored) int { return a.Slot.Order - b.Slot.Order })
	groups := map[string]*group{}
	var joined []*group // in the plans' order
	for _, r := range slots {
		p := l.pods[r.Slot.Pod.UID]
		switch {
		case p == nil:
			p = l.add(r.Slot.Pod, r.Class)
		case p.state == Queued || p.state == Refused:
			l.reclass(p, r.Class) // the scheduler was faster than the intent log
		default:
			continue
		}
		var g *group
		if r.Slot.Group != "" {
			if g = groups[r.Slot.Group]; g == nil {
				g = &group{id: r.Slot.Group}
				groups[r.Slot.Group] = g
				joined = append(joined, g)
			}
		}
		l.plan(p, l.book(p.class, l.node(r.Node), g, r.Slot.Order), now)
	}
	for _, g := range joined {
		l.openGroup(g)
	}
	for n := range l.nodesIn(func(*node) bool { return true }) {
		l.openNode(n)
	}
}

// Refs are the pods that a claim's loss would concern, for events.
func (l *Ledger) Refs(claim string) []capacity.PodRef {
	var out []capacity.PodRef
	for _, s := range l.Slots(claim) {
		if s.Pod.UID != "" {
			out = append(out, s.Pod)
		}
	}
	return out
}
