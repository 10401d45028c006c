package disruption

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// budgets returns how many nodes of each pool may be terminated now for a reason. A pool that allows none although one of its nodes is due
// gets an event.
func (r *removals) budgets(s *cluster, reason karpv1.DisruptionReason, due []*decision) map[string]int {
	left := map[string]int{}
	for _, p := range s.pools {
		total, disrupting := r.terminations.count(s, p, func(m *candidate) bool { return r.terminations.unavailable(m) || r.moves.has(m.uid()) })
		left[p.Name] = max(budgets.Allowed(p.Spec.Disruption.Budgets, r.clock, total, reason)-disrupting, 0)
		karpentermetrics.Allowed(p.Name, string(reason), left[p.Name])
	}
	blocked := map[string]bool{}
	for _, d := range due {
		if name := d.pool.Name; left[name] == 0 && !blocked[name] {
			blocked[name] = true
			r.recorder.Eventf(d.pool, nil, corev1.EventTypeNormal, reasonBlocked, "Disrupt",
				"no disruption for reason %s is allowed now by the pool's disruption budgets", reason)
		}
	}
	return left
}

// count counts a pool's initialized nodes, and those of them that are being disrupted. A node whose instance is terminating is no longer
// part of the pool.
func (t *terminations) count(s *cluster, p *karpv1.NodePool, disrupting func(*candidate) bool) (total, disrupted int) {
	for _, m := range s.candidates {
		if m.pool != p || condition(m.claim, karpv1.ConditionTypeInitialized) == nil ||
			condition(m.claim, karpv1.ConditionTypeInstanceTerminating) != nil {
			continue
		}
		total++
		if disrupting(m) {
			disrupted++
		}
	}
	return total, disrupted
}

// unavailable reports whether a node is being terminated or isn't Ready.
func (t *terminations) unavailable(m *candidate) bool {
	return m.node == nil || !objects.Ready(m.node) || m.node.DeletionTimestamp != nil || m.claim.DeletionTimestamp != nil || t.deleted[m.uid()]
}
