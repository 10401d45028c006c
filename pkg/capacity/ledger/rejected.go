package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Rejected is a pod that the scheduler's filters refused on the node that was built for it.
type Rejected struct {
	Claim, Node    string
	Pod            capacity.PodRef
	Plugin, Reason string // as far as they are known
	// Beside: pods have gone to the node that were not planned there, so that its room may be theirs. A pod of a higher priority may.
	Beside bool
}

// HasRejected says that TakeRejected would answer any.
func (l *Ledger) HasRejected() bool { return len(l.rejected) > 0 }

// TakeRejected are the pods that were refused so since the last call.
func (l *Ledger) TakeRejected() []Rejected {
	out := l.rejected
	l.rejected = nil
	return out
}

func (l *Ledger) reject(p *pod, reason string) {
	const most = 10_000 // nobody asks where nothing is guarded
	if s := p.slot; s != nil && s.node.claim != "" && len(l.rejected) < most {
		l.rejected = append(l.rejected, Rejected{Claim: s.node.claim, Node: s.node.name, Pod: p.ref, Reason: reason, Beside: s.node.others})
	}
}

// RejectedBy says which filter has refused the pod, if it was refused just now. by answers it of a node.
func (l *Ledger) RejectedBy(pod types.UID, by func(node string) (plugin, reason string)) {
	if n := len(l.rejected) - 1; n >= 0 && l.rejected[n].Pod.UID == pod && l.rejected[n].Plugin == "" {
		r := &l.rejected[n]
		if plugin, reason := by(r.Node); plugin != "" {
			r.Plugin, r.Reason = plugin, reason
		}
	}
}

// Keeps says of claims whether anything is kept on their nodes.
func (l *Ledger) Keeps(claims []string) map[string]bool {
	out := make(map[string]bool, len(claims))
	for _, name := range claims {
		n, ok := l.nodes[name]
		out[name] = ok && (len(n.slots) > 0 || len(l.assumed[n.name]) > 0)
	}
	return out
}

// Forgive ends the back-off of pods and their classes, because what they failed of is over, and plans for them again.
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
