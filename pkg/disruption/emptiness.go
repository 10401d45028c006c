package disruption

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// emptiness: the node has been without pods of its own for its pool's consolidateAfter.
type emptiness struct {
	pods   cache.Indexer
	nodes  Nodes
	needed func(node string) (needed, known bool)
}

func (emptiness) budget() karpv1.DisruptionReason { return karpv1.DisruptionReasonEmpty }

func (e emptiness) decide(m *candidate, now time.Time) (*decision, error) {
	after, ok := consolidateAfter(m)
	if !ok {
		return nil, nil
	}
	if needed, known := e.forBuffers(m); needed || !known && now.Sub(m.watched) < buffersUnknown {
		return nil, nil
	}
	bound, err := pods.OnNode(e.pods, m.node.Name)
	if err != nil || slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) {
		return nil, err
	}
	since := e.quietSince(m)
	return &decision{candidate: m, reason: string(e.budget()), message: "it is empty", since: since, at: since.Add(after)}, nil
}

// buffersUnknown is how long after the start of this process empty nodes are kept because it isn't known yet on which nodes capacity for
// CapacityBuffers is kept.
const buffersUnknown = 5 * time.Minute

// forBuffers reports whether capacity for CapacityBuffers is kept on the node, and whether that is known.
func (e emptiness) forBuffers(m *candidate) (needed, known bool) {
	if e.needed == nil {
		return false, true
	}
	return e.needed(m.node.Name)
}

// consolidateAfter returns how long the pool lets the node be empty; false when it is never terminated for that, or can't be now.
func consolidateAfter(m *candidate) (time.Duration, bool) {
	switch {
	case m.pool == nil || m.pool.DeletionTimestamp != nil || m.pool.Spec.Replicas != nil || m.pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
		return 0, false
	case paused(m):
		return 0, false
	case m.claim.DeletionTimestamp != nil || condition(m.claim, karpv1.ConditionTypeInitialized) == nil:
		return 0, false
	case m.node == nil || m.node.DeletionTimestamp != nil || disrupted(m.node) || m.node.Labels[karpv1.NodeInitializedLabelKey] != "true":
		return 0, false
	}
	return *m.pool.Spec.Disruption.ConsolidateAfter.Duration, true
}

// quietSince returns when a pod was last bound to the node or left it, or else when the node was initialized. Pod events before this
// process began to watch may not be recorded, so the beginning of the watch counts as one.
func (e emptiness) quietSince(m *candidate) time.Time {
	at := condition(m.claim, karpv1.ConditionTypeInitialized).LastTransitionTime.Time
	for _, t := range []time.Time{m.claim.Status.LastPodEventTime.Time, e.nodes.LastPodEvent(m.node.Name), m.watched} {
		if t.After(at) {
			at = t
		}
	}
	return at
}
