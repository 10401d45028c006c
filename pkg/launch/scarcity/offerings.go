package scarcity

import (
	"sync"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// memory is how long after its last refusal an offering is tried with a single claim first. The cloud provider remembers refusals for
// a much shorter time, so an offering with much demand is refused again before this ends.
const memory = 15 * time.Minute

// Offerings remembers the offerings for which the cloud had no capacity at the last try. Safe for concurrent use.
type Offerings struct {
	mu      sync.Mutex
	refused map[capacity.OfferKey]time.Time
}

// Learn records what a launch call returned and what it was refused.
func (s *Offerings) Learn(got []capacity.Instance, refused []capacity.OfferKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.refused {
		if now.Sub(at) > memory {
			delete(s.refused, k)
		}
	}
	for _, k := range refused {
		if s.refused == nil {
			s.refused = map[capacity.OfferKey]time.Time{}
		}
		s.refused[k] = now
	}
	for k := range s.refused {
		for i := range got {
			if k.InstanceType == got[i].InstanceType && k.Zone == got[i].Zone && k.CapacityType == got[i].CapacityType {
				delete(s.refused, k)
				break
			}
		}
	}
}

// All reports whether the cloud had no capacity for any of the offerings at the last try.
func (s *Offerings) All(offers []capacity.NodeOffer, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offers {
		if at, ok := s.refused[o.Key()]; !ok || now.Sub(at) > memory {
			return false
		}
	}
	return len(offers) > 0
}
