// Package brake bounds how many nodes per minute Dovetail itself decides to terminate, whichever controller decides. It is the last
// protection against a mistake that affects everything at once: a list that came back empty, a clock that jumped, a wrong template.
//
// It doesn't delay deletions by users, nor the cleanup after instances that have already ended.
package brake

import (
	"sync"
	"time"
)

const window = time.Minute

// Brake allows at most a fixed number of terminations in any minute. Safe for concurrent use.
type Brake struct {
	perMinute int

	mu    sync.Mutex
	taken []time.Time // when the terminations of the last minute were counted, the earliest first
}

// New returns a Brake that allows perMinute (at least 1) terminations in any minute.
func New(perMinute int) *Brake { return &Brake{perMinute: max(perMinute, 1)} }

// Take counts one more termination at now. It returns false, and counts nothing, if there were already perMinute terminations in the last minute.
func (b *Brake) Take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if len(b.taken) >= b.perMinute {
		return false
	}
	b.taken = append(b.taken, now)
	return true
}

// Wait returns how long Take will go on to return false; 0: Take would return true now.
func (b *Brake) Wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if len(b.taken) < b.perMinute {
		return 0
	}
	return b.taken[len(b.taken)-b.perMinute].Add(window).Sub(now)
}

// PerMinute returns the bound.
func (b *Brake) PerMinute() int { return b.perMinute }

// forget drops the terminations that are over a minute old and, after the clock was set back, those that lie in the future.
func (b *Brake) forget(now time.Time) {
	kept := b.taken[:0]
	for _, t := range b.taken {
		if age := now.Sub(t); age >= 0 && age < window {
			kept = append(kept, t)
		}
	}
	b.taken = kept
}
