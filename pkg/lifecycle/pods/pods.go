package pods

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Annotations that keep a pod from being disrupted, besides karpenter.sh/do-not-disrupt.
const (
	annotationDoNotEvict  = "karpenter.sh/do-not-evict"                      // "true": the older name
	annotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict" // "false": Cluster Autoscaler's name
)

// stuckAfter is how long a pod may be past its own deletion time before a drain no longer waits for it.
const stuckAfter = time.Minute

// Terminating reports whether the pod was deleted and its object is still there.
func Terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// Stuck reports whether the pod should have ended over a minute ago: no kubelet ends it.
func Stuck(p *corev1.Pod, now time.Time) bool {
	return Terminating(p) && now.Sub(p.DeletionTimestamp.Time) > stuckAfter
}

// Daemon reports whether a DaemonSet owns the pod.
func Daemon(p *corev1.Pod) bool { return ownedBy(p, "apps/v1", "DaemonSet") }

// Mirror reports whether the pod is the mirror pod of a static pod: the API server can't end it.
func Mirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || ownedBy(p, "v1", "Node")
}

// Critical reports whether the pod belongs to the last groups of a drain.
func Critical(p *corev1.Pod) bool {
	const systemCritical = 2_000_000_000 // k8s.io/kubernetes/pkg/apis/scheduling SystemCriticalPriority
	return p.Spec.PriorityClassName == "system-cluster-critical" || p.Spec.PriorityClassName == "system-node-critical" ||
		p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical
}

// Occupies reports whether a node with this pod is not empty.
func Occupies(p *corev1.Pod, now time.Time) bool {
	return !objects.Ended(p) && !Daemon(p) && !Mirror(p) && !Stuck(p, now) && Cost(p) > 0
}

// Cost returns what it costs to end the pod early, computed as in Karpenter: 1 for an ordinary pod, more for those of high priority or high
// deletion cost, at most 10. Pods with a cost of zero or less (those that only keep spare capacity) don't keep a node from being removed.
func Cost(p *corev1.Pod) float64 {
	cost := 1.0
	if p.Spec.Priority != nil {
		cost += float64(*p.Spec.Priority) / (1 << 25)
	}
	if d, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32); err == nil {
		cost += float64(d) / (1 << 27)
	}
	return max(-10, min(cost, 10))
}

// Drainable reports whether a drain evicts or waits for the pod: it is no mirror pod, not stuck, and doesn't tolerate the disrupted taint.
func Drainable(p *corev1.Pod, now time.Time) bool {
	return !Mirror(p) && !Stuck(p, now) && !capacity.Tolerates(p.Spec.Tolerations, &karpv1.DisruptedNoScheduleTaint)
}

// Awaited reports whether a drain goes on as long as the pod is there.
func Awaited(p *corev1.Pod, now time.Time) bool { return !objects.Ended(p) && Drainable(p, now) }

// Evictable reports whether a drain evicts the pod now. A drain waits for pods that are awaited and not evictable.
func Evictable(p *corev1.Pod, now time.Time) bool {
	protected, _ := DoNotDisrupt(p, now)
	return Awaited(p, now) && !Terminating(p) && !protected
}

// DoNotDisrupt reports whether the pod asks not to be disrupted now, and until when; no time: for ever. A duration counts from the pod's
// start. A value that is neither a boolean nor a duration ("1d", "yes") protects for ever: that was the intention, and lost work can't be
// recovered, while terminationGracePeriod ends a drain that waits in vain. (Karpenter doesn't protect such pods.)
func DoNotDisrupt(p *corev1.Pod, now time.Time) (bool, time.Time) {
	if p.Annotations[annotationDoNotEvict] == "true" || p.Annotations[annotationSafeToEvict] == "false" {
		return true, time.Time{}
	}
	value, ok := p.Annotations[karpv1.DoNotDisruptAnnotationKey]
	if !ok {
		return false, time.Time{}
	}
	if yes, err := strconv.ParseBool(value); err == nil {
		return yes, time.Time{}
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return true, time.Time{}
	}
	if d <= 0 {
		return false, time.Time{}
	}
	if p.Status.StartTime == nil {
		return true, time.Time{} // not started: the duration has not begun
	}
	until := p.Status.StartTime.Add(d)
	return now.Before(until), until
}

func ownedBy(p *corev1.Pod, apiVersion, kind string) bool {
	for i := range p.OwnerReferences {
		if p.OwnerReferences[i].APIVersion == apiVersion && p.OwnerReferences[i].Kind == kind {
			return true
		}
	}
	return false
}
