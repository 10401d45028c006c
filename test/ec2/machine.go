package ec2

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// Machine is an instance as the software on it sees it.
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
	// RootGiB is the size of the volume the kubelet has its files on.
	RootGiB int64
}

// ProviderID is what the kubelet puts on its Node.
func (m *Machine) ProviderID() string { return "aws:///" + m.Zone + "/" + m.ID }

// Machines is told which instances run, in the order of events and one at a time. Boot and Halt must not call the
// simulator and must return soon.
type Machines interface {
	// Boot is called when the instance is running.
	Boot(Machine)
	// Halt is called when an instance that was booted begins to shut down.
	Halt(id string)
}

// effect is what has to happen outside the world after a change in it. One member is set.
type effect struct {
	boot    *Machine
	halt    string
	arrived bool // of a message
}
