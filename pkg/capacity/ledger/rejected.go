package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Rejected is a pod that the scheduler's filters refused on the node that was launched for it, or that could not use it.
type Rejected struct {
	Claim, Node    string
	Pod            capacity.PodRef
	Plugin, Reason string // if known
	// Beside: other pods are on the node or are being bound to it, planned there or not (as pods of a higher priority may be), and may be
	// why the filters refused this one. Informers need not show them yet.
	Beside bool
	// Waited: the pod waited for what a driver had to publish on the node, until its gate reached the time limit.
	Waited bool
}

// HasRejected reports whether TakeRejected would return any.
func (l *Ledger) HasRejected() bool { return len(l.rejected) > 0 }

// TakeRejected returns the pods that were rejected since the last call.
func (l *Ledger) TakeRejected() []Rejected {
	out := l.rejected
	l.rejected = nil
	return out
}

// mostRejected limits how many rejected pods are remembered: without a guard on spending nothing calls TakeRejected.
const mostRejected = 10_000

func (l *Ledger) reject(p *pod, reason string) {
	if s := p.slot; s != nil && s.node.claim != "" && len(l.rejected) < mostRejected {
		l.rejected = append(l.rejected, Rejected{Claim: s.node.claim, Node: s.node.name, Pod: p.ref, Reason: reason, Beside: s.node.others || s.node.served || l.keptFor(s.node)})
	}
}

func (l *Ledger) waitedInVain(n *node, p *pod, reason string) {
	if n.claim != "" && len(l.rejected) < mostRejected {
		l.rejected = append(l.rejected, Rejected{Claim: n.claim, Node: n.name, Pod: p.ref, Reason: reason, Waited: true})
	}
}

// rejectedBy records which filter rejected the pod, if the pod was the last one to be rejected. by returns the filter and its reason for
// a node.
func (l *Ledger) rejectedBy(pod types.UID, by func(node string) (plugin, reason string)) {
	if n := len(l.rejected) - 1; n >= 0 && l.rejected[n].Pod.UID == pod && l.rejected[n].Plugin == "" {
		r := &l.rejected[n]
		if plugin, reason := by(r.Node); plugin != "" {
			r.Plugin, r.Reason = plugin, reason
		}
	}
}

// Keeps reports for each claim whether its node has reservations or pods that are being bound. DaemonSet pods don't count: nothing is
// launched for them, and while one that has preempted the node's pods is being bound, the guard has to judge the instance.
func (l *Ledger) Keeps(claims []string) map[string]bool {
	out := make(map[string]bool, len(claims))
	for _, name := range claims {
		n := l.nodes[name]
		if n == nil {
			continue
		}
		out[name] = !n.idle()
		for _, b := range l.assumed[n.name] {
			out[name] = out[name] || !b.daemon
		}
	}
	return out
}

// Forgive ends the back-off of pods and their classes, because the cause of their failures is gone, and plans for them again.
func (l *Ledger) Forgive(uids []types.UID, now time.Time) {
	for _, uid := range uids {
		p, ok := l.pods[uid]
		if !ok {
			continue
		}
		c := p.class
		p.failed, c.failed, c.next = 0, 0, time.Time{}
		c.refused, c.patient = 0, time.Time{}
		c.lost, c.rest = 0, time.Time{}
		if p.state == Refused {
			l.queue(p, now)
		}
	}
}
