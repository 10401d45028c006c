package disruption

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// drift: the node has drifted and has no pods of its own. It needs no replacement, so it ends at once. Drifted nodes with pods are emptied first
// (moves); in static pools a spare node is launched first (pkg/staticpool).
type drift struct {
	pods     cache.Indexer
	rollOuts *rollOuts
}

func (drift) budget() karpv1.DisruptionReason { return karpv1.DisruptionReasonDrifted }

func (d drift) decide(m *candidate, now time.Time) (*decision, error) {
	since, yes := d.rollOuts.forced(m)
	_, why := driftOf(m.claim)
	switch {
	case !yes, m.claim.DeletionTimestamp != nil, condition(m.claim, karpv1.ConditionTypeInitialized) == nil,
		m.node == nil || m.node.DeletionTimestamp != nil || disrupted(m.node) || m.node.Labels[karpv1.NodeInitializedLabelKey] != "true":
		return nil, nil
	}
	bound, err := pods.OnNode(d.pods, m.node.Name)
	if err != nil || slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) {
		return nil, err
	}
	return &decision{candidate: m, reason: string(d.budget()), message: "it is empty, and has drifted (" + string(why) + ")", since: since, at: since, drift: true}, nil
}

// driftMove: the node has drifted, and has pods of its own. How many such nodes are emptied at a time is also a matter of the roll-out (rollout.go).
type driftMove struct{ rollOuts *rollOuts }

func (driftMove) name() consolidation.Reason { return consolidation.Drifted }

// due: where the budgets allow none now, the node is a candidate like others. It may be emptied to save money, and take pods.
func (d driftMove) due(m *candidate, _ time.Time) (since time.Time, yes bool) {
	since, yes = d.rollOuts.forced(m)
	return since, yes && budgets.Any(m.pool.Spec.Disruption.Budgets, d.rollOuts.clock, karpv1.DisruptionReasonDrifted)
}

func (d driftMove) allowed(pool *karpv1.NodePool, total int) (n int, asked bool) {
	return budgets.Allowed(pool.Spec.Disruption.Budgets, d.rollOuts.clock, total, karpv1.DisruptionReasonDrifted), true
}

func (driftMove) text(m *candidate) string {
	_, why := driftOf(m.claim)
	return "it has drifted (" + string(why) + ")"
}

func (driftMove) clause() string { return "which has drifted" }

func (d driftMove) over(mv *move) error { return d.rollOuts.stale(mv) }
