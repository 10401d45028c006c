// Package brake bounds how many nodes end per minute by decision of Dovetail itself, whoever decides. It is the last line
// against a mistake that concerns everything at once: a list that came back empty, a clock that jumped, a wrong template.
//
// It does not hold back what people delete, nor the end of instances that have died already.
package brake

import (
	"sync"
	"time"
)

const window = time.Minute

// Brake lets at most so many through in any minute. Safe for concurrent use.
type Brake struct {
	perMinute int

	mu    sync.Mutex
	taken []time.Time // of the last minute, in order
}

// New returns a brake that lets perMinute (at least 1) through in any minute.
func New(perMinute int) *Brake { return &Brake{perMinute: max(perMinute, 1)} }

// Take counts one more end at now; false, and nothing is counted, when the last minute has had its share.
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

// Wait is how long Take will go on to refuse; 0: it would not refuse now.
func (b *Brake) Wait(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(now)
	if len(b.taken) < b.perMinute {
		return 0
	}
	return b.taken[len(b.taken)-b.perMinute].Add(window).Sub(now)
}

// PerMinute is the bound.
func (b *Brake) PerMinute() int { return b.perMinute }

// forget drops what is over a minute old, and, after the clock was set back, what lies ahead.
func (b *Brake) forget(now time.Time) {
	kept := b.taken[:0]
	for _, t := range b.taken {
		if age := now.Sub(t); age >= 0 && age < window {
			kept = append(kept, t)
		}
	}
	b.taken = kept
}
