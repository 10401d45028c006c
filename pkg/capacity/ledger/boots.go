package ledger

import (
	"slices"
	"time"
)

// Patience is how long the ledger waits for what doesn't come.
type Patience struct {
	// Gate is how long a pod's gate stays closed for a plan: longer than a launch and a registration may take.
	Gate time.Duration
	// Late is how long a node may take to register until enough nodes have shown how long they take; later, it gets no further pods.
	Late time.Duration
}

// usualPatience is that of a new ledger.
var usualPatience = Patience{Gate: 25 * time.Minute, Late: 3 * time.Minute}

// SetPatience replaces the usual patience.
func (l *Ledger) SetPatience(p Patience) { l.patience = p }

const (
	// bootSamples are remembered, and bootsKnown of them are enough to judge by.
	bootSamples = 200
	bootsKnown  = 30
)

// bootTimes learns how long nodes take from launch to registration.
type bootTimes struct {
	samples []time.Duration
	next    int
}

func (b *bootTimes) add(d time.Duration) {
	if len(b.samples) < bootSamples {
		b.samples = append(b.samples, d)
		return
	}
	b.samples[b.next] = d
	b.next = (b.next + 1) % bootSamples
}

// late is the time after which a node is unusually late: the 99th percentile of those seen, first as long as they are few.
func (b *bootTimes) late(first time.Duration) time.Duration {
	if len(b.samples) < bootsKnown {
		return first
	}
	sorted := slices.Sorted(slices.Values(b.samples))
	return sorted[len(sorted)*99/100]
}
