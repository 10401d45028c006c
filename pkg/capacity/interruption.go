package capacity

import "time"

// Interruption is the cloud's notice that it takes an instance away, or may do so.
type Interruption struct {
	InstanceID string
	Kind       InterruptionKind
	// Ends is when the cloud ends the instance; zero: it has not said.
	Ends time.Time
	// Unconfirmed: a message in the queue says that the instance ends, and the cloud can't be asked whether that is true.
	Unconfirmed bool
}

// InterruptionKind is why an instance ends, as events name it.
type InterruptionKind string

const (
	// SpotInterrupted: spot capacity is taken back, in two minutes at most.
	SpotInterrupted InterruptionKind = "SpotInterrupted"
	// SpotRebalance: spot capacity may be taken back soon; it may also never be.
	SpotRebalance InterruptionKind = "SpotRebalanceRecommendation"
	// InterruptionRefuted: a message said that the instance ends, and the cloud says that it doesn't.
	InterruptionRefuted InterruptionKind = "InterruptionRefuted"
	// ReservationInterrupted: the owner of a reservation takes it back, in two minutes at most.
	ReservationInterrupted InterruptionKind = "CapacityReservationInstanceInterrupted"
	// MaintenanceScheduled: the instance will be stopped, restarted or retired.
	MaintenanceScheduled InterruptionKind = "MaintenanceScheduled"
	// MachineStopping and MachineTerminating: the instance is being stopped or terminated, or has been, whatever the cause.
	MachineStopping    InterruptionKind = "InstanceStopping"
	MachineTerminating InterruptionKind = "InstanceTerminating"
)
