package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/booked"
)

// Reader answers questions about the ledger. No answer changes it, so several goroutines may ask at once while none calls a method that does. Pin,
// Gate and Gated are not among the questions: Pin gives a pod its slot, and the other two record that the pod has been kept from a cycle.
type Reader interface {
	// Pods.
	Knows(uid types.UID) bool
	Refused(uid types.UID) bool
	Unplanned(uid types.UID) bool
	Queue() Queue
	QueuedPods(q Queue) []Waiting
	Queued() int
	Waits(launched bool) bool
	Releasable(launched bool) []Waiting
	HasRejected() bool
	Some(n int) []capacity.PodRef

	// Nodes and claims.
	Has(claim string) bool
	IsNamed(claim, name string) bool
	Watches(name string) bool
	BindsInFlight(name string) bool
	Awaited(claim string) bool
	Keeps(claims []string) map[string]bool
	InFlight() []InFlight
	NotInitialized() int

	// Reservations.
	Slots(claim string) []capacity.Slot
	AllSlots(claims []string) map[string][]capacity.Slot
	Refs(claim string) []capacity.PodRef
	Held(leaving string) (held map[Successor]int, up int)
	Adopted() map[types.UID][]types.UID
	Expects(c *capacity.Class) bool
	Apart(c *capacity.Class, preempts bool) map[capacity.ClassKey]bool
	PlannedSoon(uid types.UID, now time.Time) bool
	HoldsChunks(name string) bool
	Buffers() []BufferState
	Booked(request types.UID) (booked.State, bool)
	Object(name string, ask *Ask, on Amounts) error

	Summary() Summary
	String() string
}

var _ Reader = &Ledger{}
