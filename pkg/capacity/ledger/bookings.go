package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/booked"
)

// Book turns the placements of a ProvisioningRequest's pods into slots. The request is the Owner of all of them, and only pods that name
// the request take them. Book reports whether all of the placements are reserved; if not, none of them is. The slots end at the given time
// unless KeepBooked changes that.
func (l *Ledger) Book(plan string, request types.UID, placements []capacity.Placement, until, now time.Time) bool {
	before := len(l.bookedBy(request))
	holds := make([]hold, len(placements))
	for i := range holds {
		holds[i] = hold{until: until}
	}
	l.commit(plan, placements, holds, now)
	if all := l.bookedBy(request); len(all) < before+len(placements) {
		for _, s := range all[before:] {
			l.drop(s)
		}
		return false
	}
	if l.bookings[request] == nil {
		l.bookings[request] = booked.New()
	}
	l.bookings[request].Add(len(placements))
	l.adoptWaiting(placements, now)
	return true
}

// adoptWaiting gives capacity that has just been booked to pods that name the request and have none: they were created too early.
func (l *Ledger) adoptWaiting(placements []capacity.Placement, now time.Time) {
	named := func(p *pod) bool {
		return p.class.Request != "" && (p.state == Queued || p.state == Refused) && slices.ContainsFunc(placements, func(pl capacity.Placement) bool {
			return pl.Class.Request == p.class.Request && pl.Class.Namespace == p.class.Namespace
		})
	}
	for p := range l.podsIn(named) {
		l.adopt(p, p.owner, now)
	}
}

// KeepBooked keeps what is booked for a request until the given time.
func (l *Ledger) KeepBooked(request types.UID, until time.Time) {
	for _, s := range l.bookedBy(request) {
		s.until = until
	}
}

// loseBooked counts the slot as lost in the request's booking, if there is one; request is the slot's owner.
func (l *Ledger) loseBooked(request types.UID, s *slot, why string) {
	if b := l.bookings[request]; b != nil {
		b.Lose(s.class.Key, why)
	}
}

// Mend forgets that capacity of a request's booking was lost, because as much was booked elsewhere instead.
func (l *Ledger) Mend(request types.UID) {
	if b := l.bookings[request]; b != nil {
		b.Mend()
	}
}

// Unbook ends a booking. giveBack: instances that were launched for it and whose kubelets have not registered are ended, unless other pods
// use them soon (see endUnneeded).
func (l *Ledger) Unbook(request types.UID, giveBack bool, now time.Time) {
	delete(l.bookings, request)
	for _, s := range l.bookedBy(request) {
		l.drop(s)
		if n := s.node; giveBack && n.launched && n.idle() {
			n.unneededSince = now
		}
	}
}

// Booked returns what has become of a request's booking; false: nothing is booked for it.
func (l *Ledger) Booked(request types.UID) (out booked.State, ok bool) {
	b := l.bookings[request]
	if b == nil {
		return out, false
	}
	out = b.State()
	for _, s := range l.bookedBy(request) {
		out.Kept++
		if s.ready && s.node.up() {
			out.Up++
		}
		if name := cmp.Or(s.node.name, s.node.key); !slices.Contains(out.Nodes, name) {
			out.Nodes = append(out.Nodes, name)
		}
	}
	return out, true
}

// bookedBy returns the slots that are booked for a request, in plan order.
func (l *Ledger) bookedBy(request types.UID) (out []*slot) {
	for _, s := range l.held[request] {
		if s.class.Request != "" {
			out = append(out, s)
		}
	}
	return out
}

// mostTried bounds how many nodes bookedOf checks for the slots of one class, since it runs in scheduling cycles.
const mostTried = 50

// bookedFor returns a slot that is booked for the ProvisioningRequest which class c names, is large enough for a pod of c and on a node that the pod
// may use, or nil. It prefers a slot of class c itself, then a ready one, then the smallest. A pod that names the request may have other labels
// than the pod template that capacity was booked for, and so be of another class.
func (l *Ledger) bookedFor(c *capacity.Class) (best *slot) {
	if c.Request == "" || len(l.bookings) == 0 {
		return nil
	}
	rank := func(s *slot) int {
		switch {
		case s.class.Key == c.Key:
			return 0
		case s.ready:
			return 1
		}
		return 2
	}
	for _, k := range l.classes {
		if k.Request != c.Request || k.Namespace != c.Namespace || !c.Requests.Fits(k.Requests) {
			continue
		}
		s := l.bookedOf(k, c)
		if s != nil && (best == nil || cmp.Or(cmp.Compare(rank(s), rank(best)), booked.Smaller(k.Requests, best.class.Requests), cmp.Compare(s.order, best.order)) < 0) {
			best = s
		}
	}
	return best
}

// bookedOf returns the first booked slot of class k on a node that pods of class c may use, a ready one if possible, or nil.
func (l *Ledger) bookedOf(k *class, c *capacity.Class) (first *slot) {
	var last *node
	tried := 0
	for _, s := range k.slots {
		if l.bookings[s.owner] == nil || s.node.fenced || s.node == last {
			continue
		}
		if first == nil || s.ready {
			if tried++; tried > mostTried {
				return first
			}
			if !s.node.suits(c) {
				last = s.node
				continue
			}
		}
		if s.ready {
			return s
		}
		if first == nil {
			first = s
		}
	}
	return first
}

// suits reports whether the node's labels and its taints other than startup taints, as far as they are known, let pods of the class on it.
func (n *node) suits(c *capacity.Class) bool {
	taints := n.status.Taints
	if !n.cached || n.status.Managed && !n.status.Initialized {
		if taints = nil; n.template != nil {
			taints = n.template.Taints
		}
	}
	if capacity.Untolerated(c.Tolerations, taints) != nil {
		return false
	}
	return n.status.Labels == nil || len(c.Terms) == 0 || slices.ContainsFunc(c.Terms, func(t capacity.Requirements) bool { return t.Match(n.status.Labels) })
}
