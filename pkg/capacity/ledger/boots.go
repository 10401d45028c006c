package ledger

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/boots"
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

// booted learns from a node that has registered. It ignores recovered nodes: they may have registered while no process watched.
func (l *Ledger) booted(n *node, now time.Time) {
	if n.launchedAt.IsZero() || n.recovered || n.template == nil {
		return
	}
	b := l.boots[n.template.Kind.Boot]
	if b == nil {
		b = &boots.Times{}
		l.boots[n.template.Kind.Boot] = b
	}
	b.Add(now.Sub(n.launchedAt))
}

// lateAfter returns how long after its launch the node counts as late.
func (l *Ledger) lateAfter(n *node) time.Duration {
	if n.template == nil {
		return l.patience.Late
	}
	return l.boots[n.template.Kind.Boot].Late(l.patience.Late)
}
