package disruption

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

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
