package ledger

import (
	"slices"
	"time"
)

// Patience holds the ledger's time limits.
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

// usualPatience is the default.
var usualPatience = Patience{Gate: 25 * time.Minute, Late: 3 * time.Minute, Startup: time.Hour}

// SetPatience replaces the default time limits.
func (l *Ledger) SetPatience(p Patience) { l.patience = p }

const (
	// bootSamples registration times are remembered. bootsKnown of them are enough to expect nodes sooner than Patience.Late; any number
	// of them is enough to give nodes more time than that.
	bootSamples = 200
	bootsKnown  = 30
	// bootMargin is added to 1.5 times the time that almost all nodes have taken. Taking a node for late by mistake costs a second
	// instance for the next pods; waiting for a node in vain costs these pods time.
	bootMargin = 30 * time.Second
	// leastPatience is how long any node may take, however fast others were.
	leastPatience = time.Minute
)

// bootTimes learns how long nodes with the same boot configuration take from launch to registration.
type bootTimes struct {
	samples []time.Duration
	next    int
	usual   time.Duration // the time limit that the samples suggest
}

func (b *bootTimes) add(d time.Duration) {
	if len(b.samples) < bootSamples {
		b.samples = append(b.samples, d)
	} else {
		b.samples[b.next] = d
		b.next = (b.next + 1) % bootSamples
	}
	sorted := slices.Sorted(slices.Values(b.samples))
	b.usual = max(sorted[len(sorted)*99/100]*3/2+bootMargin, leastPatience)
}

// late returns how long after its launch a node counts as late. Without samples that is first; with few samples it is at least first.
func (b *bootTimes) late(first time.Duration) time.Duration {
	switch {
	case b == nil:
		return first
	case len(b.samples) < bootsKnown:
		return max(first, b.usual)
	}
	return b.usual
}

// booted learns from a node that has registered. It ignores recovered nodes: they may have registered while no process watched.
func (l *Ledger) booted(n *node, now time.Time) {
	if n.launchedAt.IsZero() || n.recovered || n.template == nil {
		return
	}
	b := l.boots[n.template.Kind.Boot]
	if b == nil {
		b = &bootTimes{}
		l.boots[n.template.Kind.Boot] = b
	}
	b.add(now.Sub(n.launchedAt))
}

// lateAfter returns how long after its launch the node counts as late.
func (l *Ledger) lateAfter(n *node) time.Duration {
	if n.template == nil {
		return l.patience.Late
	}
	return l.boots[n.template.Kind.Boot].late(l.patience.Late)
}
