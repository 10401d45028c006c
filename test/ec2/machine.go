package ec2

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Machine describes an instance to the software that boots on it.
type Machine struct {
	ID             string
	Type           *catalog.Type
	Region         string
	Zone           string
	ZoneID         string
	PrivateIP      string
	PrivateDNSName string
	ImageID        string
	UserData       []byte
	CapacityType   string
	LaunchedAt     time.Time
	// RootGiB is the size of the volume that holds the kubelet's files.
	RootGiB int64
}

// ProviderID returns the provider ID of the instance's Node.
func (m *Machine) ProviderID() string { return "aws:///" + m.Zone + "/" + m.ID }

// Machines boots and stops software on instances. Its methods are called in the order of events and one at a time. They must not call
// the simulator and must return soon.
type Machines interface {
	// Boot is called when the instance is running.
	Boot(Machine)
	// Halt is called when a booted instance begins to shut down.
	Halt(id string)
}

// effect is an action outside the world that follows from a change in it. One field is set.
type effect struct {
	boot    *Machine
	halt    string
	arrived bool // a message has arrived
}
