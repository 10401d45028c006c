package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// booking is what is known of a ProvisioningRequest's slots: reservations with the request as their owner, which only pods that name it take.
type booking struct {
	pods int                       // that capacity was booked for
	lost map[capacity.ClassKey]int // slots that have ended because of their nodes or their time, by class
	why  string                    // the last of them was dropped
}

// BookingState is what has become of a booking.
type BookingState struct {
	// Pods is for how many pods capacity was booked, Kept how many of them have not come yet, Up how many of those have it on nodes that are
	// initialized, and Gone for how many it has ended, with its node or its time.
	Pods, Kept, Up, Gone int
	// Lost is Gone by class, and Why says why the last capacity has ended.
	Lost map[capacity.ClassKey]int
	Why  string
	// Nodes are the nodes with capacity that is kept, by name, or by claim as long as they have none.
	Nodes []string
}

// Taken is how many of its pods have come.
func (b *BookingState) Taken() int { return b.Pods - b.Kept - b.Gone }

// Book turns the placements of a ProvisioningRequest's pods into slots that only pods which name it take. The Owner of all of them is the
// request. It reports whether all of it is reserved; otherwise nothing more than before is. The slots end at the given time unless KeepBooked
// changes that.
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
		l.bookings[request] = &booking{lost: map[capacity.ClassKey]int{}}
	}
	l.bookings[request].pods += len(placements)
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

// loseBooked notes that a slot ends which may be booked for a request.
func (l *Ledger) loseBooked(request types.UID, s *slot, why string) {
	if b := l.bookings[request]; b != nil {
		b.lost[s.class.Key]++
		b.why = why
	}
}

// Mend forgets that capacity of a booking was lost, because the same was booked elsewhere.
func (l *Ledger) Mend(request types.UID) {
	if b := l.bookings[request]; b != nil {
		for _, n := range b.lost {
			b.pods -= n
		}
		clear(b.lost)
	}
}

// Unbook ends a booking. giveBack: instances that were launched for it and whose kubelets have not registered are ended unless other pods use
// them soon, as those of a gang that was given up.
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
func (l *Ledger) Booked(request types.UID) (out BookingState, ok bool) {
	b := l.bookings[request]
	if b == nil {
		return out, false
	}
	out = BookingState{Pods: b.pods, Lost: maps.Clone(b.lost), Why: b.why}
	for _, n := range b.lost {
		out.Gone += n
	}
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
	if l.held[request] == 0 {
		return nil
	}
	for _, c := range l.classes {
		if c.Request == "" {
			continue
		}
		for _, s := range c.slots {
			if s.owner == request {
				out = append(out, s)
			}
		}
	}
	slices.SortFunc(out, func(a, b *slot) int { return cmp.Compare(a.order, b.order) })
	return out
}

// bookedFor returns a slot that is booked for the request which the class names and is large enough for a pod of it, or nil: one of the same
// class if possible, then the smallest, a ready one first. The pods may have other labels than the template that was booked for, so their
// class may be another.
func (l *Ledger) bookedFor(c *capacity.Class) (best *slot) {
	if c.Request == "" {
		return nil
	}
	rank := func(s *slot) int {
		switch {
		case s.class.Key == c.Key && s.ready:
			return 0
		case s.class.Key == c.Key:
			return 1
		case s.ready:
			return 2
		}
		return 3
	}
	for _, k := range l.classes {
		if k.Request != c.Request || k.Namespace != c.Namespace || !c.Requests.Fits(k.Requests) {
			continue
		}
		for _, s := range k.slots {
			if l.bookings[s.owner] == nil || s.node.fenced {
				continue
			}
			if best == nil || cmp.Or(cmp.Compare(rank(s), rank(best)), smaller(k.Requests, best.class.Requests), cmp.Compare(s.order, best.order)) < 0 {
				best = s
			}
		}
	}
	return best
}

// smaller compares what two classes request: negative if the first needs no more of anything, and less of something.
func smaller(a, b capacity.Resources) int {
	switch less, more := a.Fits(b), b.Fits(a); {
	case less && !more:
		return -1
	case more && !less:
		return 1
	}
	return 0
}
