package ledger

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
)

// waitsForTaints reports whether pods of the class wait for a node that is Ready and has a taint that is going to be removed.
func (c *class) waitsForTaints() bool {
	return slices.ContainsFunc(c.slots, func(s *slot) bool {
		st := &s.node.status
		return !s.ready && st.Ready && !st.Initialized && capacity.Untolerated(c.Tolerations, st.Taints) != nil
	})
}

// Awaited reports whether pods are planned for the claim's node that have not been bound yet.
func (l *Ledger) Awaited(claim string) bool {
	n := l.nodes[claim]
	return n != nil && !n.idle()
}

// notice reports, once each, NoExecute taints on a node whose kubelet isn't Ready yet if they keep off pods the node was bought for: pods
// that are not bound yet, or that were bound before the taint appeared and evicted by it. A taint that all of them tolerate does no harm.
// A taint that appears on a Ready node is not waited for, even if one of Kubernetes' own taints still keeps the node from being initialized.
func (l *Ledger) notice(n *node) {
	if n.claim == "" || !n.status.Managed || n.status.KubeletReady || n.status.Initialized {
		return
	}
	for _, t := range n.status.Taints {
		if !capacity.OthersTaint(&t) || nodestatus.Has(n.tainted, &t) {
			continue
		}
		for _, c := range n.meant {
			if !capacity.Tolerates(c.Tolerations, &t) {
				n.tainted = append(n.tainted, t)
				l.out.Tainted = append(l.out.Tainted, Tainted{n.claim, t})
				break
			}
		}
	}
}
