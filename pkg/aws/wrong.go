package aws

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// notJoinedFor is how long an offer is left alone after an instance from it has not become a node in its time.
const notJoinedFor = 15 * time.Minute

// NotJoined says that an instance bought as o has not become a node. Whatever the reason is, elsewhere the chances are better.
func (p *Provider) NotJoined(o capacity.OfferKey) {
	p.exhausted.addFor(notJoinedFor, scope{capacityType: o.CapacityType, instanceType: o.InstanceType, zone: o.Zone})
}

// Interrupted says that an instance bought as o is being taken back: its pool is not to be asked for a while.
func (p *Provider) Interrupted(o capacity.OfferKey) {
	p.exhausted.add(scope{capacityType: o.CapacityType, instanceType: o.InstanceType, zone: o.Zone})
}

const (
	// spotTaken is the reason that EC2 gives for the end of an instance whose spot capacity it has taken back.
	spotTaken = "Server.SpotInstanceTermination"
	// takenShown is longer than EC2 shows an instance after its end.
	takenShown = 2 * time.Hour
)

// takenBack remembers the spot instances that were seen taken back, so that each counts once.
type takenBack struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  map[string]time.Time // by id: when
}

// first says whether an instance is seen taken back for the first time.
func (t *takenBack) first(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.seen[id]; known {
		return false
	}
	maps.DeleteFunc(t.seen, func(_ string, at time.Time) bool { return t.clock.Since(at) > takenShown })
	t.seen[id] = t.clock.Now()
	return true
}

// sawTaken is for an instance that EC2 shows as interrupted, whether or not anybody was warned of it.
func (p *Provider) sawTaken(i *capacity.Instance) {
	if p.taken.first(i.ID) {
		p.Interrupted(capacity.OfferKey{InstanceType: i.InstanceType, Zone: i.Zone, CapacityType: i.CapacityType})
	}
}

// takenByEC2 are the reasons that EC2 gives for the end of an instance whose capacity it has taken back or does not have
// (DescribeInstances, StateReason). Whatever else ended an instance may end the next one as well.
var takenByEC2 = map[string]bool{
	spotTaken:                             true,
	"Server.SpotInstanceShutdown":         true,
	"Server.ScheduledStop":                true,
	"Server.InsufficientInstanceCapacity": true,
}
