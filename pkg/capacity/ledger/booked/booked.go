// Package booked counts what has become of the capacity that is booked for a ProvisioningRequest. It knows no reservations: the ledger has them.
package booked

import (
	"maps"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Booking is what is known of a request's reservations, which only pods that name it take.
type Booking struct {
	pods int                       // for how many pods capacity was booked
	lost map[capacity.ClassKey]int // reservations that have ended because of their nodes or their time, by class
	why  string                    // reason for the end of the last of these reservations
}

// New returns a booking without pods.
func New() *Booking { return &Booking{lost: map[capacity.ClassKey]int{}} }

// State is what has become of a booking.
type State struct {
	// Pods is for how many pods capacity was booked. Kept of them have not come yet and still have it, Up of these on nodes that are
	// initialized. For Gone of them it has ended, with its node or its time.
	Pods, Kept, Up, Gone int
	// Lost is Gone by class, and Why says why the last capacity has ended.
	Lost map[capacity.ClassKey]int
	Why  string
	// Nodes are the nodes with capacity that is kept, by name, or by claim as long as they have none.
	Nodes []string
}

// Taken is how many of its pods have come.
func (s *State) Taken() int { return s.Pods - s.Kept - s.Gone }

// Add notes that capacity was booked for more pods.
func (b *Booking) Add(pods int) { b.pods += pods }

// Lose notes that a reservation of the booking has ended.
func (b *Booking) Lose(class capacity.ClassKey, why string) {
	b.lost[class]++
	b.why = why
}

// Mend forgets what was lost, because the same was booked elsewhere.
func (b *Booking) Mend() {
	for _, n := range b.lost {
		b.pods -= n
	}
	clear(b.lost)
}

// State returns what has become of the booking. The ledger fills in Kept, Up and Nodes.
func (b *Booking) State() State {
	out := State{Pods: b.pods, Lost: maps.Clone(b.lost), Why: b.why}
	for _, n := range b.lost {
		out.Gone += n
	}
	return out
}

// Smaller compares what two classes request: negative if the first needs no more of anything, and less of something.
func Smaller(a, b capacity.Resources) int {
	switch less, more := a.Fits(b), b.Fits(a); {
	case less && !more:
		return -1
	case more && !less:
		return 1
	}
	return 0
}
