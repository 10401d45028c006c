package drift

import (
	"maps"
	"sync"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Instance holds the properties of an instance that drift compares with the class.
type Instance struct {
	Subnet, Reservation, Image string
	Groups                     []string
	// Ended: it is shutting down or terminated.
	Ended bool
}

// Seen remembers what EC2 has last shown of each instance. The zero Seen is empty. Safe for concurrent use.
type Seen struct {
	mu     sync.Mutex
	byID   map[string]*Instance
	listed bool // Keep was called, so that byID has had every instance at least once
}

// Note remembers an instance. reservation is the capacity reservation that it was launched into, if any.
func (s *Seen) Note(i *ec2types.Instance, reservation string, ended bool) {
	now := &Instance{Subnet: awssdk.ToString(i.SubnetId), Reservation: reservation, Image: awssdk.ToString(i.ImageId), Ended: ended}
	for _, g := range i.SecurityGroups {
		now.Groups = append(now.Groups, awssdk.ToString(g.GroupId))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = map[string]*Instance{}
	}
	s.byID[awssdk.ToString(i.InstanceId)] = now
}

// Keep forgets all instances whose ids are not in the map, which must name every instance that exists.
func (s *Seen) Keep(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed = true
	maps.DeleteFunc(s.byID, func(id string, _ *Instance) bool { return !ids[id] })
}

// Get returns what was last seen of an instance, or nil if it was never seen; the caller must not change it. listed reports whether all instances
// have been listed since the start (Keep was called).
func (s *Seen) Get(id string) (i *Instance, listed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id], s.listed
}
