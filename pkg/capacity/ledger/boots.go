package ledger

import (
	"slices"
	"time"
)

const (
	// firstLate is how long a node may take until enough nodes have shown how long they take.
	firstLate = 3 * time.Minute
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

// late is the time after which a node is unusually late: the 99th percentile of those seen.
func (b *bootTimes) late() time.Duration {
	if len(b.samples) < bootsKnown {
		return firstLate
	}
	sorted := slices.Sorted(slices.Values(b.samples))
	return sorted[len(sorted)*99/100]
}
