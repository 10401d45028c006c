package ledger

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// waitsForTaints says that pods of the class wait for a node that is Ready and has a taint which will be taken off it.
func (c *class) waitsForTaints() bool {
	return slices.ContainsFunc(c.slots, func(s *slot) bool {
		st := &s.node.status
		return !s.ready && st.Ready && !st.Initialized && capacity.Untolerated(c.Tolerations, st.Taints) != nil
	})
}

// Awaited says that pods are planned for the claim's node which have not been bound yet.
func (l *Ledger) Awaited(claim string) bool {
	n := l.nodes[claim]
	return n != nil && len(n.slots) > 0
}

// notice says once of each NoExecute taint on a node whose kubelet isn't Ready yet that it keeps off pods which the node was bought for,
// whether they are still to come or were bound before it came, and have been evicted by it. A taint that all of them tolerate harms
// nobody. One that comes to a node which is Ready is not waited for (docs/design/undeclared.md), also while a taint of Kubernetes still
// keeps that node from being initialized.
func (l *Ledger) notice(n *node) {
	if n.claim == "" || !n.status.Managed || n.status.KubeletReady || n.status.Initialized {
		return
	}
	for _, t := range n.status.Taints {
		same := func(have corev1.Taint) bool { return have.MatchTaint(&t) }
		if !capacity.OthersTaint(&t) || slices.ContainsFunc(n.tainted, same) {
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
