package pods

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Annotations that keep a pod from being disrupted, beside karpenter.sh/do-not-disrupt.
const (
	annotationDoNotEvict  = "karpenter.sh/do-not-evict"                      // "true": the older name
	annotationSafeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict" // "false": the other autoscaler's name
)

// stuckAfter is how long a pod may be past its own deletion time before nobody waits for it any more.
const stuckAfter = time.Minute

// Terminating says that the pod was deleted and has not ended yet.
func Terminating(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }

// Stuck says that the pod should have ended over a minute ago: no kubelet ends it.
func Stuck(p *corev1.Pod, now time.Time) bool {
	return Terminating(p) && now.Sub(p.DeletionTimestamp.Time) > stuckAfter
}

// Daemon says that a DaemonSet owns the pod.
func Daemon(p *corev1.Pod) bool { return ownedBy(p, "apps/v1", "DaemonSet") }

// Mirror says that the pod is the image of a static pod: the API server can't end it.
func Mirror(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror || ownedBy(p, "v1", "Node")
}

// Critical says that the pod belongs to the last groups of a drain.
func Critical(p *corev1.Pod) bool {
	const systemCritical = 2_000_000_000 // k8s.io/kubernetes/pkg/apis/scheduling SystemCriticalPriority
	return p.Spec.PriorityClassName == "system-cluster-critical" || p.Spec.PriorityClassName == "system-node-critical" ||
		p.Spec.Priority != nil && *p.Spec.Priority >= systemCritical
}

// Occupies says that a node with this pod is not empty.
func Occupies(p *corev1.Pod, now time.Time) bool {
	return !objects.Ended(p) && !Daemon(p) && !Mirror(p) && !Stuck(p, now) && Cost(p) > 0
}

// Cost is what ending the pod early costs, as Karpenter reckons: 1 for an ordinary pod, more for those of high priority or high
// deletion cost, at most 10. What costs nothing or less (pods that only keep room warm) holds no node.
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

// Drainable says that a drain ends or waits for the pod: it is not part of the machine and did not ask to stay.
func Drainable(p *corev1.Pod, now time.Time) bool {
	return !Mirror(p) && !Stuck(p, now) && !capacity.Tolerates(p.Spec.Tolerations, &karpv1.DisruptedNoScheduleTaint)
}

// Awaited says that a drain is not over while the pod is there.
func Awaited(p *corev1.Pod, now time.Time) bool { return !objects.Ended(p) && Drainable(p, now) }

// Evictable says that a drain evicts the pod now. Pods that are awaited and not evictable are waited for.
func Evictable(p *corev1.Pod, now time.Time) bool {
	protected, _ := DoNotDisrupt(p, now)
	return Awaited(p, now) && !Terminating(p) && !protected
}

// DoNotDisrupt says whether the pod asks not to be disturbed now, and until when; no time: for ever. A duration counts from
// the pod's start. A value that is neither true or false nor a duration ("1d", "yes") protects for ever: it was meant to, and
// work that is lost is lost, while terminationGracePeriod ends a drain that waits in vain. (Karpenter lets such pods go.)
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
