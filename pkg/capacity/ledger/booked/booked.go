// Package booked counts what has become of the capacity that is booked for a ProvisioningRequest. It knows no reservations: the ledger has them.
package booked

import (
	"maps"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Booking counts the reservations of a ProvisioningRequest, which only pods that name the request take.
type Booking struct {
	pods int                       // number of pods that capacity was booked for
	lost map[capacity.ClassKey]int // number of reservations that ended unused, with their node or by their time limit, by class
	why  string                    // why the most recent of the lost reservations ended
}

// New returns a booking without pods.
func New() *Booking { return &Booking{lost: map[capacity.ClassKey]int{}} }

// State is what has become of a booking.
type State struct {
	// Pods is the number of pods that capacity was booked for. Of these, Kept have not been created yet and still have their capacity; Up counts
	// the part of Kept on initialized nodes. Gone is the number of pods whose capacity has ended unused, with its node or by its time limit.
	Pods, Kept, Up, Gone int
	// Lost is Gone by class, and Why the reason for which capacity was lost most recently.
	Lost map[capacity.ClassKey]int
	Why  string
	// Nodes are the nodes with capacity that is kept, by name, or by claim as long as they have none.
	Nodes []string
}

// Taken is the number of pods that were created and have taken their reservations.
func (s *State) Taken() int { return s.Pods - s.Kept - s.Gone }

// Add notes that capacity was booked for more pods.
func (b *Booking) Add(pods int) { b.pods += pods }

// Lose notes that a reservation of the booking has ended.
func (b *Booking) Lose(class capacity.ClassKey, why string) {
	b.lost[class]++
	b.why = why
}

// Mend forgets the lost reservations, because as much was booked elsewhere instead, which Add has counted.
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
