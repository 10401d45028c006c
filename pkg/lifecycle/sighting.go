package lifecycle

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

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

// When the cloud's answer "not found" is believed: after missesToEnd such answers in a row over at least missesSpan, about an instance that this
// leader has seen and that is older than capacity.LaunchGrace. A new instance may be unknown to parts of EC2 for that long, and a part that lags
// may answer about an instance of any age, so one answer is never enough. The recorded age comes from an earlier leader's clock: an instance that
// this leader has never seen is looked for until the answers span capacity.LaunchGrace.
const (
	missesToEnd = 3
	missesSpan  = 10 * time.Second
	// lookEvery is the time between two lookups of an instance while something depends on the answer, most often whether the instance
	// exists.
	lookEvery = 5 * time.Second
	// longestPause is the most that the time between two lookups counts for in the span of "not found" answers: the clock may have jumped.
	longestPause = 2 * lookEvery
)

// sighting is what was last seen of one instance.
type sighting struct {
	inst    capacity.Instance
	at      time.Time
	verdict verdict
	seen    bool          // the cloud has shown the instance at least once
	misses  int           // number of "not found" answers since it was last found
	missed  time.Duration // time between the first and the last of these answers, as far as it counts (longestPause)
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
	if s.seen && s.misses >= missesToEnd && s.missed >= missesSpan && now.Sub(launchedAt) >= capacity.LaunchGrace || s.missed >= capacity.LaunchGrace {
		s.verdict = ended
	}
	return s.verdict
}

// sightings asks the cloud about instances, and remembers by their ID what was last seen of them.
type sightings struct {
	cloud Instances
	clock clock.PassiveClock
	seen  memory[string, sighting]
}

// address returns the instance's address if it was seen with one.
func (s *sightings) address(id string) string {
	last, _ := s.seen.get(id)
	return last.inst.InternalIP
}

// look asks the cloud about an instance, unless it was asked within maxAge. It returns the instance as last seen, which may be empty when
// the verdict is not alive.
func (s *sightings) look(ctx context.Context, providerID string, launchedAt time.Time, maxAge time.Duration) (capacity.Instance, verdict, error) {
	id := capacity.InstanceID(providerID)
	if last, ok := s.seen.get(id); ok && (last.verdict == ended || s.clock.Since(last.at) < maxAge) {
		return last.inst, last.verdict, nil
	}
	inst, err := s.cloud.Describe(ctx, id)
	if err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		return capacity.Instance{}, unsure, err
	}
	now := s.clock.Now()
	last := s.seen.update(id, func(x sighting, _ bool) sighting {
		x.see(inst, err == nil, launchedAt, now)
		return x
	})
	return last.inst, last.verdict, nil
}
