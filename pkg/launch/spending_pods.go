package launch

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Pods returns the handler for the scheduler's pod informer: it watches what becomes of pods on our instances.
func (s *Spending) Pods() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { s.podChanged(o.(*corev1.Pod), false) },
		UpdateFunc: func(old, o any) {
			before, now := old.(*corev1.Pod), o.(*corev1.Pod)
			if before.UID != now.UID {
				s.podChanged(before, true)
			}
			if before.Spec.NodeName != now.Spec.NodeName || (before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) {
				s.podMoved(now)
			}
			s.podChanged(now, false)
		},
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if pod, ok := o.(*corev1.Pod); ok {
				s.podMoved(pod)
				s.podChanged(pod, true)
			}
		},
	}
}

func (s *Spending) podChanged(pod *corev1.Pod, gone bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.byNode[pod.Spec.NodeName]
	if pod.Spec.NodeName == "" {
		b = s.byPod[pod.UID] // it may have been preempted while it was being bound
		if b == nil || !objects.Ended(pod) && pod.DeletionTimestamp == nil && !gone {
			return
		}
	}
	if b == nil || b.pods == nil {
		return
	}
	s.addPodLocked(b, pod)
	if gone {
		delete(b.pods, pod.UID)
	}
	s.noticeLocked()
}

// podMoved records that a pod has been bound to its node, or is being deleted.
func (s *Spending) podMoved(pod *corev1.Pod) {
	if s == nil || pod.Spec.NodeName == "" || objects.DaemonSetKey(pod) != "" {
		return
	}
	w := s.workloadOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved[w] = s.clock.Now()
}

// addPodLocked updates the state of a pod on an instance.
func (s *Spending) addPodLocked(b *watched, pod *corev1.Pod) {
	if objects.DaemonSetKey(pod) != "" || pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return
	}
	now := s.clock.Now()
	l := b.pods[pod.UID]
	if l == nil {
		if objects.Ended(pod) && pod.DeletionTimestamp != nil {
			return // ended long ago
		}
		l = &boundPod{workload: s.workload(pod, b)}
		b.pods[pod.UID] = l
	}
	s.ranLocked(b, l, now) // before it is marked as left: it may be deleted already
	switch cause, message := s.thrownOff(pod); {
	case l.left:
	case cause != "":
		l.left = true
		// A node that becomes unhealthy before it was ever initialized gets its verdict when it is given up: that is a machine fault.
		sick := unhealthy[cause]
		if b.end != nil || b.neutral || b.over || sick && b.initialized.IsZero() {
			return // it goes with its instance
		}
		f := guard.Fault{Machine: sick, Cause: cause, Message: fmt.Sprintf("pod %s/%s had to leave node %s: %s", pod.Namespace, pod.Name, b.node, message), Workloads: []guard.Workload{l.workload}}
		served := s.guard.Served(b.claim)
		switch {
		case !slices.Contains(b.workloads, l.workload):
		case served: // a probe that works for other workloads
			s.guard.Fail(b.claim, f, now)
		default:
			b.thrown = append(b.thrown, f)
		}
		if now.Sub(b.at) < thrownWithin && !(served && cause == causePreempted) {
			s.throwLocked(b, l.workload, pod, &f, now)
		}
	case objects.Ended(pod) && pod.DeletionTimestamp == nil:
		if !l.counted && !disrupted(pod) {
			l.counted = true
			s.serveLocked(b, l.workload, now, true)
		}
		l.left = true
	case pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
		if l.running.IsZero() {
			l.running = now
			s.guard.Ran(b.claim, l.workload)
		}
	case pod.DeletionTimestamp != nil:
		l.left = true // its owner wanted it gone
	}
}

// workload returns the workload that the pod belongs to, as recorded with the purchase if it is.
func (s *Spending) workload(pod *corev1.Pod, b *watched) guard.Workload {
	if w, ok := b.wanted[pod.UID]; ok {
		return w
	}
	return s.workloadOf(pod)
}

func (s *Spending) workloadOf(pod *corev1.Pod) guard.Workload {
	return s.owners.WorkloadOf(pod, func() *capacity.Class {
		class, err := s.classes.Class(pod)
		if err != nil {
			return &capacity.Class{Namespace: pod.Namespace}
		}
		return class
	})
}

const causePreempted = "preempted"

// unhealthy holds the causes that are faults of the machine and not of the pods.
var unhealthy = map[string]bool{"taint " + corev1.TaintNodeUnreachable: true, "taint " + corev1.TaintNodeNotReady: true}

// thrownOff returns why a pod was evicted or rejected; empty: it wasn't, or it ended because of its owner, its instance's end or the cloud.
func (s *Spending) thrownOff(pod *corev1.Pod) (cause, message string) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case corev1.PodReasonPreemptionByScheduler:
			return causePreempted, "it was preempted: " + c.Message
		case "DeletionByTaintManager":
			t := s.untolerated(pod)
			return "taint " + t, "taint " + cmp.Or(t, "that is gone by now") + " evicts it"
		case "EvictionByEvictionAPI":
			return "evicted", "it was evicted through the Eviction API: " + c.Message
		case corev1.PodReasonTerminationByKubelet:
			if pod.Status.Reason == "Terminated" || strings.Contains(c.Message, "shutdown") {
				return "", "" // the instance shuts down
			}
			return "kubelet " + pod.Status.Reason, "the kubelet evicted it: " + cmp.Or(pod.Status.Message, c.Message)
		}
		return "", ""
	}
	if rejected(pod) {
		return "rejected " + pod.Status.Reason, "the kubelet rejected it: " + pod.Status.Reason + ": " + pod.Status.Message
	}
	return "", ""
}

// disrupted reports whether the pod was evicted or preempted.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// rejected reports whether the kubelet did not admit the pod: it failed, for a reason of the node's, before any container was created
// (k8s.io/kubernetes, pkg/kubelet, rejectPod).
func rejected(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason == "" || pod.Status.Reason == "DeadlineExceeded" {
		return false
	}
	made := func(c corev1.ContainerStatus) bool {
		return c.ContainerID != "" || c.State.Terminated != nil || c.State.Running != nil
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, made) && !slices.ContainsFunc(pod.Status.InitContainerStatuses, made)
}

// untolerated returns the key of a NoExecute taint of the pod's node that the pod doesn't tolerate.
func (s *Spending) untolerated(pod *corev1.Pod) string {
	for _, t := range s.taints(pod.Spec.NodeName) {
		if t.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.TolerationSeconds == nil && capacity.Untolerated([]corev1.Toleration{o}, []corev1.Taint{t}) == nil
		}) {
			return t.Key
		}
	}
	return ""
}

func (s *Spending) throwLocked(b *watched, w guard.Workload, pod *corev1.Pod, f *guard.Fault, now time.Time) {
	// The controller may be one of many that a workload has, or there may be none that says how many its pods are together.
	desired := max(s.owners.Desired(pod, s.pending.Created(objects.Controller(pod))), s.togetherLocked(w))
	s.guard.Throw(b.claim, b.pool, w, desired, guard.Fault{Cause: f.Cause, Message: "NodeClaim " + b.claim + ": " + f.Message}, now)
}

// togetherLocked returns how many pods of a workload are on instances, or have one bought for them.
func (s *Spending) togetherLocked(w guard.Workload) int {
	of := map[types.UID]bool{}
	for _, b := range s.machines {
		for uid, wanted := range b.wanted {
			of[uid] = of[uid] || wanted == w
		}
		for uid, l := range b.pods {
			of[uid] = of[uid] || l.workload == w && !l.left
		}
	}
	n := 0
	for _, is := range of {
		if is {
			n++
		}
	}
	return n
}

// hasOtherPods reports whether pods are on the instance that it was not bought for. After a restart these may have been bound before the
// pods it was bought for: if those are then refused, that is a race, and no fault of the instance.
func (b *watched) hasOtherPods() bool {
	for uid, l := range b.pods {
		if _, ok := b.wanted[uid]; !ok && !l.left {
			return true
		}
	}
	return false
}

// rejectedByFilters records that a pod that was planned on a claim's node did not pass the scheduler's filters once the node existed. late:
// in the pod's own scheduling cycle, when other pods may have been bound in between. beside: other pods are there, whether the informer
// shows them yet or not.
func (s *Spending) rejectedByFilters(claim string, pod *corev1.Pod, plugin, reason string, late, beside bool) {
	if s == nil || pod == nil {
		return
	}
	w := s.workloadOf(pod)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.machines[claim]
	if b == nil || b.over {
		return
	}
	now := s.clock.Now()
	f := guard.Fault{Cause: "filter", Workloads: []guard.Workload{w}, Message: "pods that were planned there can't run there: " + reason}
	if plugin != "" {
		f.Cause, f.Message = "filter "+plugin, fmt.Sprintf("the scheduler's %s filter refuses its pods on the node as launched: %s", plugin, reason)
	}
	// This counts whatever other pods are on the instance: refused so often is no race.
	if now.Sub(b.at) < thrownWithin {
		s.throwLocked(b, w, pod, &f, now)
	}
	switch {
	case beside || b.hasOtherPods():
		return
	case s.guard.Served(claim): // a probe that works for other workloads
		s.guard.Fail(claim, f, now)
		return
	}
	// Pods of the workload have come or gone, or a domain that the spread counted is gone.
	f.Overtaken = late && (s.moved[w].After(b.at) || plugin == pluginSpread && s.nodeGone.After(b.at))
	b.thrown = append(b.thrown, f)
}
