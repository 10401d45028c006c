package ledger

import (
	"slices"
	"time"
)

// Patience is how long the ledger waits for what doesn't come.
type Patience struct {
	// Gate is how long a pod's gate stays closed for a plan: longer than a launch and a registration may take.
	Gate time.Duration
	// Late is how long a node may take to register until enough nodes of its kind have shown how long they take; later, it gets no
	// further pods.
	Late time.Duration
	// Startup is how much longer a gate stays closed for a node that is Ready and only keeps its startup taints: whoever looks after
	// nodes gives it up in that time.
	Startup time.Duration
}

// usualPatience is that of a new ledger.
var usualPatience = Patience{Gate: 25 * time.Minute, Late: 3 * time.Minute, Startup: time.Hour}

// SetPatience replaces the usual patience.
func (l *Ledger) SetPatience(p Patience) { l.patience = p }

const (
	// bootSamples are remembered, and bootsKnown of them are enough to expect nodes sooner than is usual; any number of them is
	// enough to give nodes more time.
	bootSamples = 200
	bootsKnown  = 30
	// bootMargin is added to one and a half times what almost all nodes have taken. A node that is wrongly taken for late costs a
	// second machine for the next pods, one that is waited for in vain costs these pods some time.
	bootMargin = 30 * time.Second
	// leastPatience is how long any node may take, however fast others were.
	leastPatience = time.Minute
)

// bootTimes learns how long nodes that boot alike take from launch to registration.
type bootTimes struct {
	samples []time.Duration
	next    int
	usual   time.Duration // the patience that the samples suggest
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

// late is the time after which a node is unusually late. first is it as long as none has come.
func (b *bootTimes) late(first time.Duration) time.Duration {
	switch {
	case b == nil:
		return first
	case len(b.samples) < bootsKnown:
		return max(first, b.usual)
	}
	return b.usual
}

// booted learns from a node that has registered. What became of it while no process looked is not known, nor when.
func (l *Ledger) booted(n *node, now time.Time) {
	if n.launchedAt.IsZero() || n.recovered || n.template == nil {
		return
	}
	b := l.boots[n.template.Boot]
	if b == nil {
		b = &bootTimes{}
		l.boots[n.template.Boot] = b
	}
	b.add(now.Sub(n.launchedAt))
}

// lateAfter is how long after its launch the node is late.
func (l *Ledger) lateAfter(n *node) time.Duration {
	if n.template == nil {
		return l.patience.Late
	}
	return l.boots[n.template.Boot].late(l.patience.Late)
}
