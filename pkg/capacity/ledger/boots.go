package ledger

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/boots"
)

// Patience is how long is waited for nodes that boot, and for what they still need then.
type Patience = boots.Patience

// SetPatience replaces the default time limits.
func (l *Ledger) SetPatience(p Patience) { l.patience = p }

// booted notes how long a node took from its launch to its registration, except for nodes that may have registered while no process watched.
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
