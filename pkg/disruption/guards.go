package disruption

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Annotations that keep a node from being ended by decision of Dovetail, beside karpenter.sh/do-not-disrupt and objects.AnnotationPauseDisruption.
const (
	// On a Node, "true": it isn't ended to save money. The first is Karpenter's older name, the second is cluster-autoscaler's.
	annotationDoNotConsolidate  = "karpenter.sh/do-not-consolidate"
	annotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// paused reports whether the pool keeps all of its nodes for now. A user who sets the annotation wants them kept, so any value counts
// except one that means false.
func paused(m *candidate) bool {
	if m.pool == nil {
		return false
	}
	value, ok := m.pool.Annotations[objects.AnnotationPauseDisruption]
	yes, err := strconv.ParseBool(value)
	return ok && (err != nil || yes)
}

// consolidationBlockers returns the annotations by which a node refuses consolidation. A pool with the policy WhenEmpty doesn't
// consolidate, and do-not-consolidate never prevented the termination of empty nodes.
func consolidationBlockers(m *candidate) []string {
	out := []string{annotationScaleDownDisabled}
	if m.pool.Spec.Disruption.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty {
		out = append(out, annotationDoNotConsolidate)
	}
	return out
}

// protected returns why a node may not be disrupted voluntarily. DaemonSet pods and static pods may protect it, too.
// drift: whether it would be disrupted because it has drifted.
func protected(m *candidate, bound []*corev1.Pod, now time.Time, drift bool) error {
	switch by := protection(m, bound, now, drift); {
	case by == nil:
		return nil
	case by.pod != nil:
		return fmt.Errorf("disruption is blocked by pod %s, which asks not to be disrupted", klog.KObj(by.pod))
	default:
		return errors.New("disruption is blocked by the annotation " + by.annotation)
	}
}

// protector is what keeps a node from being disrupted voluntarily: an annotation of node or claim, or a pod.
type protector struct {
	annotation string
	pod        *corev1.Pod
	until      time.Time // zero: for ever
}

// hasDeadline reports whether a drifted node ends in spite of its pods: with a terminationGracePeriod its drain ends in any case, as in Karpenter.
func hasDeadline(m *candidate) bool { return m.claim.Spec.TerminationGracePeriod != nil }

// protection returns what keeps a node from being disrupted voluntarily; nil: nothing. Annotations against consolidation don't keep a node that
// has drifted, and neither do pods if the node has a terminationGracePeriod.
func protection(m *candidate, bound []*corev1.Pod, now time.Time, drift bool) *protector {
	if m.node.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" || m.claim.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return &protector{annotation: karpv1.DoNotDisruptAnnotationKey}
	}
	for _, key := range consolidationBlockers(m) {
		if !drift && m.node.Annotations[key] == "true" {
			return &protector{annotation: key}
		}
	}
	if drift && hasDeadline(m) {
		return nil
	}
	var by *protector
	for _, p := range bound {
		yes, until := pods.DoNotDisrupt(p, now)
		if yes && !objects.Ended(p) && !pods.Terminating(p) && (by == nil || p.UID < by.pod.UID) { // always the same pod, so that the event stays the same
			by = &protector{pod: p, until: until}
		}
	}
	return by
}

// draining returns the first pod for which the drain of a node would have to wait because of a PodDisruptionBudget, as of the last time that
// these were read; nil: none. As in Karpenter all pods count, those of DaemonSets and those without a disruption cost, too, and none does if the
// node has drifted and its terminationGracePeriod ends the drain. If r is nil, PodDisruptionBudgets aren't known, and no pod is returned.
func draining(r *podrules.Rules, m *candidate, bound []*corev1.Pod, drifted bool, now time.Time) *consolidation.Kept {
	if r == nil || drifted && hasDeadline(m) {
		return nil
	}
	return r.Unevictable(r.Look(bound), now)
}

// moving returns the pods that need another node when theirs is emptied. Pods with a disruption cost of zero or less don't count.
func moving(m *candidate, bound []*corev1.Pod, drifted bool, now time.Time) (out []*corev1.Pod) {
	for _, p := range bound {
		if leaves(m, p, drifted, now) && pods.Cost(p) > 0 {
			out = append(out, p)
		}
	}
	return out
}
