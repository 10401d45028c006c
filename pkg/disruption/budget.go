package disruption

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// budgets is how many nodes of each pool may be ended now because they are empty. Pools that allow none although one of
// their nodes is due are told.
func (c *Controller) budgets(s *survey, due []*machine) map[string]int {
	left := map[string]int{}
	for _, p := range s.pools {
		total, disrupting := c.tally(s, p)
		// Fails closed: a schedule or a number that can't be read allows nothing.
		allowed := p.MustGetAllowedDisruptions(c.clock, total, karpv1.DisruptionReasonEmpty)
		left[p.Name] = max(allowed-disrupting, 0)
		allowedDisruptions.WithLabelValues(p.Name, string(karpv1.DisruptionReasonEmpty)).Set(float64(left[p.Name]))
	}
	told := map[string]bool{}
	for _, m := range due {
		if name := m.pool.Name; left[name] == 0 && !told[name] {
			told[name] = true
			c.recorder.Eventf(m.pool, nil, corev1.EventTypeNormal, reasonBlocked, "Disrupt",
				"no disruption for reason %s is allowed now by the pool's disruption budgets", karpv1.DisruptionReasonEmpty)
		}
	}
	return left
}

// tally counts a pool's initialized nodes, and those of them that are going or not Ready. A node whose instance is on its
// way out is no part of the pool any more.
func (c *Controller) tally(s *survey, p *karpv1.NodePool) (total, disrupting int) {
	for _, m := range s.machines {
		if m.pool != p || condition(m.claim, karpv1.ConditionTypeInitialized) == nil ||
			condition(m.claim, karpv1.ConditionTypeInstanceTerminating) != nil {
			continue
		}
		total++
		if m.node == nil || !ready(m.node) || m.node.DeletionTimestamp != nil || m.claim.DeletionTimestamp != nil || c.going[string(m.claim.UID)] {
			disrupting++
		}
	}
	return total, disrupting
}
