// Package boots learns how long nodes take to boot.
package boots

import (
	"slices"
	"time"
)

const (
	// At most mostSamples registration times are remembered. Only with enoughSamples of them may a node count as late sooner than by
	// default; with any number of them, nodes may get more time than by default.
	mostSamples   = 200
	enoughSamples = 30
	// margin is added to 1.5 times the time that almost all nodes have taken. Taking a node for late by mistake costs a second
	// instance for the next pods; waiting for a node in vain costs these pods time.
	margin = 30 * time.Second
	// leastPatience is how long any node may take, however fast others were.
	leastPatience = time.Minute
)

// Patience is how long is waited for nodes that boot.
type Patience struct {
	// Gate is how long a pod's gate stays closed for a plan. It is longer than a launch and a registration may take.
	Gate time.Duration
	// Late is the time a node may take to register until enough nodes of its kind have shown how long they take. A node that takes longer
	// gets no further pods.
	Late time.Duration
	// Startup is how much longer a gate stays closed for a node that is Ready and only keeps its startup taints. Within that time the
	// node's lifecycle controller gives up on it.
	Startup time.Duration
}

// UsualPatience is the default of the ledger.
var UsualPatience = Patience{Gate: 25 * time.Minute, Late: 3 * time.Minute, Startup: time.Hour}

// Times learns how long nodes with the same boot configuration take from launch to registration.
type Times struct {
	samples []time.Duration // the last mostSamples times
	next    int             // index of the oldest sample, which the next one replaces once there are mostSamples
	usual   time.Duration   // the time limit that the samples suggest
}

// Add adds the time that a node has taken.
func (b *Times) Add(d time.Duration) {
	if len(b.samples) < mostSamples {
		b.samples = append(b.samples, d)
	} else {
		b.samples[b.next] = d
		b.next = (b.next + 1) % mostSamples
	}
	sorted := slices.Sorted(slices.Values(b.samples))
	b.usual = max(sorted[len(sorted)*99/100]*3/2+margin, leastPatience)
}

// Late returns how long after its launch a node counts as late. Without samples that is the default, first; with few it is at least first.
func (b *Times) Late(first time.Duration) time.Duration {
	switch {
	case b == nil:
		return first
	case len(b.samples) < enoughSamples:
		return max(first, b.usual)
	}
	return b.usual
}
