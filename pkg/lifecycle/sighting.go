package lifecycle

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// verdict says whether an instance exists, as far as this process knows.
type verdict int

const (
	// unsure: the cloud doesn't know it, which may be lag.
	unsure verdict = iota
	alive
	// ended: terminated, or unknown to the cloud for long enough.
	ended
)

// When "not found" is believed. A new instance may be unknown to parts of EC2 for minutes, and a part that lags may answer at any age, so
// one answer is never enough. An instance's recorded age comes from an earlier leader's clock: an instance that this leader has never seen
// is looked for as long as a launch may take to become visible.
const (
	launchGrace = 2 * time.Minute
	missesToEnd = 3
	missesSpan  = 10 * time.Second
	// lookEvery is the pause between lookups that are to decide something.
	lookEvery = 5 * time.Second
	// longestPause is the most that the time between two lookups counts: a clock that jumps is not time that passes.
	longestPause = 2 * lookEvery
)

// sighting is what was last seen of one instance.
type sighting struct {
	inst    capacity.Instance
	at      time.Time
	verdict verdict
	seen    bool          // once at least
	misses  int           // in a row
	missed  time.Duration // since the first of them
}

// see updates the verdict with one answer of the cloud.
func (s *sighting) see(inst capacity.Instance, found bool, launchedAt, now time.Time) verdict {
	pause := min(now.Sub(s.at), longestPause)
	s.at = now
	if found {
		s.inst, s.seen, s.misses, s.missed = inst, true, 0, 0
		s.verdict = alive
		if inst.State == capacity.InstanceTerminated {
			s.verdict = ended
		}
		return s.verdict
	}
	if s.misses > 0 {
		s.missed += max(pause, 0)
	}
	s.misses++
	s.verdict = unsure
	if s.seen && s.misses >= missesToEnd && s.missed >= missesSpan && now.Sub(launchedAt) >= launchGrace || s.missed >= launchGrace {
		s.verdict = ended
	}
	return s.verdict
}

// sightings holds those of all instances, by ID. Safe for concurrent use.
type sightings struct {
	mu   sync.Mutex
	seen map[string]*sighting
}

func newSightings() *sightings { return &sightings{seen: map[string]*sighting{}} }

func (s *sightings) update(id string, f func(*sighting)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, ok := s.seen[id]
	if !ok {
		x = &sighting{}
		s.seen[id] = x
	}
	f(x)
}

func (s *sightings) get(id string) (sighting, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x, ok := s.seen[id]; ok {
		return *x, true
	}
	return sighting{}, false
}

// address returns the instance's address if it was seen with one.
func (s *sightings) address(id string) string {
	x, _ := s.get(id)
	return x.inst.InternalIP
}

func (s *sightings) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, id)
}

// prune forgets instances that were last looked up before that moment, except owned ones: a known end must stay known.
func (s *sightings) prune(before time.Time, owned map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.seen, func(id string, x *sighting) bool { return !owned[id] && x.at.Before(before) })
}

// look asks the cloud about an instance, unless it was asked within maxAge. It returns the instance as last seen, which may be empty when
// the verdict is not alive.
func (c *Controller) look(ctx context.Context, providerID string, launchedAt time.Time, maxAge time.Duration) (capacity.Instance, verdict, error) {
	id := capacity.InstanceID(providerID)
	if s, ok := c.sightings.get(id); ok && (s.verdict == ended || c.clock.Since(s.at) < maxAge) {
		return s.inst, s.verdict, nil
	}
	inst, err := c.cloud.Describe(ctx, id)
	if err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		return capacity.Instance{}, unsure, err
	}
	now := c.clock.Now()
	var last capacity.Instance
	var v verdict
	c.sightings.update(id, func(s *sighting) {
		v = s.see(inst, err == nil, launchedAt, now)
		last = s.inst
	})
	return last, v, nil
}
