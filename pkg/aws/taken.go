package aws

import (
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// spotTaken is EC2's reason for an instance whose spot capacity it has reclaimed.
	spotTaken = "Server.SpotInstanceTermination"
	// takenShown is how long an interruption is remembered: longer than EC2 shows a terminated instance.
	takenShown = 2 * time.Hour
)

// takenBack remembers the spot instances whose interruption was seen, so that each counts once.
type takenBack struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	seen  map[string]time.Time // by instance id: when it was seen
}

// first reports whether the interruption of an instance is seen for the first time.
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

// takenByEC2 are EC2's reasons for instances whose capacity it has reclaimed or does not have (DescribeInstances, StateReason). Any
// other reason may terminate the next instance as well.
var takenByEC2 = map[string]bool{
	spotTaken:                             true,
	"Server.SpotInstanceShutdown":         true,
	"Server.ScheduledStop":                true,
	"Server.InsufficientInstanceCapacity": true,
}
