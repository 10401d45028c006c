package ledger

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// ownerHold is how long capacity stays reserved for pods that a controller is certain to create.
const ownerHold = 10 * time.Second

// Commit turns a plan's placements into reservations. Nodes that are to be bought were added before (AddNode); placements name them by
// claim. Pods that are no longer queued (they ended, or were bound meanwhile) get nothing. plan makes group ids unique across plans.
// Commit skips placements on a claim that has ended since the plan was made or on a node that was fenced, and all placements of their
// groups: those pods stay queued.
func (l *Ledger) Commit(plan string, placements []capacity.Placement, now time.Time) {
	l.commit(plan, placements, nil, now)
}

// commit makes slots of placements. holds[i] says how long placement i is reserved for its owner's next pod; if holds is nil, all such pods are
// about to be created, and their slots are kept for ownerHold.
func (l *Ledger) commit(plan string, placements []capacity.Placement, holds []hold, now time.Time) {
	fallen := l.fallen(placements)
	come := l.come(placements)
	groups := map[int]*group{}
	var joined []*group // in the order of the plan, like nodes
	var nodes []*node
	seen := map[*node]bool{}
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
				s.leaving, s.until, s.early = holds[i].leaving, holds[i].until, holds[i].early
			}
		} else {
			l.reclass(p, pl.Class)
			l.plan(p, s, now)
		}
		if !seen[s.node] {
			nodes, seen[s.node] = append(nodes, s.node), true
		}
	}
	for _, g := range joined {
		l.openGroup(g)
	}
	for _, n := range nodes {
		l.openNode(n)
	}
	l.tidyAll(placements)
	l.cancelUnneeded()
}

// cancelUnneeded cancels claims that are not launched and whose pods have all gone since they were planned. If such a node stayed in the ledger,
// later plans would place pods on it, and these would wait for ever.
func (l *Ledger) cancelUnneeded() {
	for n := range l.nodesIn(func(n *node) bool { return n.claim != "" && !n.launched && !n.cached && n.idle() }) {
		l.tidy(n)
	}
}

// expected identifies pods that capacity is reserved for before they exist.
type expected struct {
	class capacity.ClassKey
	owner types.UID
}

// come returns queued pods that were created while the plan was made, in the order in which they arrived. The plan doesn't name them: it reserves
// capacity for them as pods that their owner has yet to create.
func (l *Ledger) come(placements []capacity.Placement) map[expected][]*pod {
	held, named := map[*class]bool{}, map[types.UID]bool{}
	for _, pl := range placements {
		if c := l.classes[pl.Class.Key]; pl.Owner != "" && c != nil {
			held[c] = true
		}
		named[pl.Pod.UID] = true
	}
	out := map[expected][]*pod{}
	for c := range held {
		for _, p := range slices.SortedFunc(maps.Keys(c.queued), bySince) {
			if k := (expected{c.Key, p.owner}); !named[p.ref.UID] {
				out[k] = append(out[k], p)
			}
		}
	}
	return out
}

// tidyAll forgets the existing nodes of a plan on which nothing was reserved in the end.
func (l *Ledger) tidyAll(placements []capacity.Placement) {
	for _, pl := range placements {
		if n, ok := l.byName[pl.Node]; ok {
			l.tidy(n)
		}
	}
}

// fallen returns a function that reports whether a placement has to be skipped: the ledger no longer has its node, the node is being
// removed, or its group has such a placement. It returns nil if none has to be skipped.
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
	n.planned += c.Requests[corev1.ResourceMemory]
	s.planned = n.planned
	c.insert(s)
	n.add(s)
	l.out.Buffers = l.out.Buffers || len(n.chunks) > 0
	if g != nil {
		g.slots = append(g.slots, s)
	}
	return s
}

func (l *Ledger) plan(p *pod, s *slot, now time.Time) {
	l.become(p, Planned)
	p.since, p.why, p.unbound = now, waitReason(s), failures{}
	p.class.waiting = append(p.class.waiting, p)
}

// Slots returns the claim's reservations as they are recorded on it, in plan order. Which pod of a class gets which slot is decided only
// when its scheduling cycle begins; the record names as many entitled pods as there are slots.
func (l *Ledger) Slots(claim string) []capacity.Slot { return l.AllSlots([]string{claim})[claim] }

// AllSlots returns the Slots of several claims, or of nodes by their names. It works out only once per class which pod has which slot: that is most
// of the work.
func (l *Ledger) AllSlots(claims []string) map[string][]capacity.Slot {
	h := holders{}
	out := make(map[string][]capacity.Slot, len(claims))
	for _, claim := range claims {
		if n := l.find(claim); n != nil {
			out[claim] = h.slotsOf(n)
		}
	}
	return out
}

// holders works out which pod has, or will get, which slot, during one call of AllSlots.
type holders map[*class]map[*slot]*pod

func (h holders) slotsOf(n *node) []capacity.Slot {
	var out []capacity.Slot
	for _, s := range n.slots {
		rec := capacity.Slot{Class: s.class.Key, Order: s.order, Owner: s.owner}
		if s.group != nil {
			rec.Group = s.group.id
		}
		if s.owner == "" {
			if h[s.class] == nil {
				h[s.class] = h.of(s.class)
			}
			if p := h[s.class][s]; p != nil {
				rec.Pod = p.ref
			}
		}
		out = append(out, rec)
	}
	return out
}

// of returns a pod for each slot of the class that isn't reserved for an owner: the pod that is pinned to it, or one that is entitled to a
// slot of the class, ready slots going to open pods.
func (h holders) of(c *class) map[*slot]*pod {
	entitled := append(slices.SortedFunc(slices.Values(c.open), byArrival), c.waiting...)
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

// Restored is a reservation read back from a claim after a restart, with the class that its pod has now.
type Restored struct {
	Slot  capacity.Slot
	Node  string // the claim's name
	Class *capacity.Class
}

// Restore books reservations read back from claims. It is called before anything is planned, and again for claims that were read later; the
// caller leaves out reservations of pods that have ended. If several claims have a reservation for one pod, the pod was planned again
// before the first claim's record had been rewritten, and the reservation with the highest order counts. orders is the highest order on
// record; later plans get higher ones, so that the highest order is still the latest one after the next restart.
func (l *Ledger) Restore(slots []Restored, orders int, now time.Time) {
	l.seq = max(l.seq, orders)
	latest := map[types.UID]int{}
	for _, r := range slots {
		latest[r.Slot.Pod.UID] = max(latest[r.Slot.Pod.UID], r.Slot.Order)
	}
	slots = slices.DeleteFunc(slices.Clone(slots), func(r Restored) bool { return r.Slot.Order < latest[r.Slot.Pod.UID] })
	slices.SortStableFunc(slots, func(a, b Restored) int { return a.Slot.Order - b.Slot.Order })
	groups := map[string]*group{}
	var joined []*group // in the order of the plans
	for _, r := range slots {
		p := l.pods[r.Slot.Pod.UID]
		switch {
		case p == nil:
			p = l.add(r.Slot.Pod, r.Class)
		case p.state == Queued || p.state == Refused:
			l.reclass(p, r.Class) // the scheduler submitted the pod before the records were read
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

// Refs returns the pods that would lose their reservation with the claim, for events.
func (l *Ledger) Refs(claim string) []capacity.PodRef {
	var out []capacity.PodRef
	for _, s := range l.Slots(claim) {
		if s.Pod.UID != "" {
			out = append(out, s.Pod)
		}
	}
	return out
}
