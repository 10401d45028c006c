package spending

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// The scheduler's filters that look at the pods of other nodes (k8s.io/kubernetes, plugins/names).
const (
	pluginSpread   = "PodTopologySpread"
	pluginAffinity = "InterPodAffinity"
)

// Pods returns the handler for the scheduler's pod informer: it watches what becomes of pods on our instances.
func (g *Guard) Pods() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { g.podChanged(o.(*corev1.Pod), false) },
		UpdateFunc: func(old, o any) {
			before, now := old.(*corev1.Pod), o.(*corev1.Pod)
			if before.UID != now.UID {
				g.podChanged(before, true)
			}
			if before.Spec.NodeName != now.Spec.NodeName || (before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil) {
				g.podMoved(now)
			}
			g.podChanged(now, false)
			if g != nil && g.tends.Load() && now.Spec.NodeName != "" && rejected(now) && !rejected(before) {
				tellRejected(now, g.state.nodes, g.records)
			}
		},
		DeleteFunc: observe.Deletion(func(pod *corev1.Pod) {
			g.podMoved(pod)
			g.podChanged(pod, true)
		}),
	}
}

func (g *Guard) podChanged(pod *corev1.Pod, gone bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	b := g.state.instances.of(pod, objects.Ended(pod) || pod.DeletionTimestamp != nil || gone)
	if b == nil || b.pods == nil {
		return
	}
	g.state.observePod(b, pod, g.clock.Now())
	if gone {
		delete(b.pods, pod.UID)
	}
	g.state.notice()
}

// podMoved records that a pod has been bound to its node, or is being deleted.
func (g *Guard) podMoved(pod *corev1.Pod) {
	if g == nil || pod.Spec.NodeName == "" || objects.DaemonSetKey(pod) != "" {
		return
	}
	w, now := g.WorkloadOf(pod), g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := &g.state.recent; now.Sub(r.expired) >= movedFor {
		r.expire(now) // a process that doesn't lead has no Tend
	}
	g.state.recent.moved[w] = now
}

// WorkloadOf returns the workload that the pod belongs to.
func (g *Guard) WorkloadOf(pod *corev1.Pod) guard.Workload { return g.state.workloads.of(pod) }

// observePod updates the state of a pod on an instance.
func (s *state) observePod(b *instance, pod *corev1.Pod, now time.Time) {
	if objects.DaemonSetKey(pod) != "" || pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return
	}
	l := b.pods[pod.UID]
	if l == nil {
		if objects.Ended(pod) && pod.DeletionTimestamp != nil {
			return // it had ended before its instance was watched, before a restart of the scheduler, say
		}
		l = &boundPod{workload: s.workload(pod, b)}
		b.pods[pod.UID] = l
	}
	s.ran(b, l, now) // before it is marked as left: it may be deleted already
	switch cause, message := s.nodes.thrownOff(pod); {
	case l.left:
	case cause != "":
		l.left = true
		// A node that becomes unhealthy before it was ever initialized gets its verdict when its claim is ended: that is a machine fault.
		sick := unhealthy[cause]
		if b.end != nil || b.neutral || b.over || sick && b.initialized.IsZero() {
			return // it ends because its instance does
		}
		f := guard.Fault{Machine: sick, Cause: cause, Message: fmt.Sprintf("pod %s/%s had to leave node %s: %s", pod.Namespace, pod.Name, b.node, message), Workloads: []guard.Workload{l.workload}}
		served := s.breakers.Served(b.claim)
		switch {
		case !slices.Contains(b.workloads, l.workload):
		case served: // it works for other workloads, and may be a probe for this one
			s.breakers.Fail(b.claim, f, now)
		default:
			b.thrown = append(b.thrown, f)
		}
		if now.Sub(b.at) < thrownWithin && !(served && cause == causePreempted) {
			s.throw(b, l.workload, pod, &f, now)
		}
	case objects.Ended(pod) && pod.DeletionTimestamp == nil:
		if !l.counted && !disrupted(pod) {
			l.counted = true
			s.serve(b, l.workload, now)
		}
		l.left = true
	case pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil:
		if l.running.IsZero() {
			l.running = now
			s.breakers.Ran(b.claim, l.workload)
		}
	case pod.DeletionTimestamp != nil:
		l.left = true // its owner wanted it gone
	}
}

// workload returns the workload that the pod belongs to: the one recorded at the purchase, if the instance was bought for the pod.
func (s *state) workload(pod *corev1.Pod, b *instance) guard.Workload {
	if w, ok := b.wanted[pod.UID]; ok {
		return w
	}
	return s.workloads.of(pod)
}

const causePreempted = "preempted"

// unhealthy holds the causes that are faults of the machine and not of the pods.
var unhealthy = map[string]bool{"taint " + corev1.TaintNodeUnreachable: true, "taint " + corev1.TaintNodeNotReady: true}

// thrownOff returns why a pod was evicted or rejected; empty: it wasn't, or it ended because of its owner, its instance's end or the cloud.
func (n Nodes) thrownOff(pod *corev1.Pod) (cause, message string) {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case corev1.PodReasonPreemptionByScheduler:
			return causePreempted, "it was preempted: " + c.Message
		case "DeletionByTaintManager":
			t := n.untolerated(pod)
			return "taint " + t, "taint " + cmp.Or(t, "that is gone by now") + " evicts it"
		case "EvictionByEvictionAPI":
			if n.open(pod) {
				return "", "" // the node would take it again: whoever evicted it wanted the pod to move, and there is nothing wrong with the node
			}
			if n.drained(pod.Spec.NodeName) {
				return "", "" // what becomes of the machine has a verdict of its own
			}
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

// tellRejected counts a pod that the kubelet of a managed node did not admit, and says so on the node pool: the node may be smaller than it was
// planned (OutOfmemory, OutOfcpu). The capacity that the kubelet reports is learned elsewhere, from the Node.
func tellRejected(pod *corev1.Pod, nodes Nodes, records Records) {
	pool := nodes.Pool(pod.Spec.NodeName)
	if pool == "" {
		return
	}
	podsRejected.WithLabelValues(pool, pod.Status.Reason).Inc()
	records.TellPool(pool, corev1.EventTypeWarning, "PodRejected", objects.OneLine(fmt.Sprintf("the kubelet of node %s rejected pod %s/%s: %s: %s",
		pod.Spec.NodeName, pod.Namespace, pod.Name, pod.Status.Reason, pod.Status.Message)))
}

// untolerated returns the key of a NoExecute taint of the pod's node that the pod doesn't tolerate.
func (n Nodes) untolerated(pod *corev1.Pod) string {
	for _, t := range n.Taints(pod.Spec.NodeName) {
		if t.Effect == corev1.TaintEffectNoExecute && !slices.ContainsFunc(pod.Spec.Tolerations, func(o corev1.Toleration) bool {
			return o.TolerationSeconds == nil && capacity.Untolerated([]corev1.Toleration{o}, []corev1.Taint{t}) == nil
		}) {
			return t.Key
		}
	}
	return ""
}

// open reports whether the pod's node takes pods like it.
func (n Nodes) open(pod *corev1.Pod) bool {
	return capacity.Untolerated(pod.Spec.Tolerations, n.Taints(pod.Spec.NodeName)) == nil
}

// drained reports whether a node is being emptied by Dovetail, by this process or by another one: the reason for it may not be known here yet.
func (n Nodes) drained(node string) bool {
	return slices.ContainsFunc(n.Taints(node), func(t corev1.Taint) bool { return t.Key == capacity.TaintDisrupted })
}

// willMove reports whether a filter refuses a pod for a reason that is about to change: the filter counts other nodes' pods, and pods of the same
// workload are still on nodes that are being emptied. Plans count these pods already on the nodes where capacity is reserved for them.
func (s *state) willMove(w guard.Workload, plugin string) bool {
	if plugin != pluginSpread && plugin != pluginAffinity {
		return false
	}
	return slices.ContainsFunc(s.nodes.Drained(), func(node string) bool {
		return slices.ContainsFunc(s.nodes.Pods(node), func(p *corev1.Pod) bool { return !objects.Ended(p) && s.workloads.of(p) == w })
	})
}

// throw counts a pod that was evicted or rejected.
func (s *state) throw(b *instance, w guard.Workload, pod *corev1.Pod, f *guard.Fault, now time.Time) {
	// A workload may have several controllers, or none: then no controller says how many pods it has together.
	desired := max(s.workloads.desired(pod), s.instances.together(w))
	s.breakers.Throw(b.claim, b.pool, w, desired, guard.Fault{Cause: f.Cause, Message: "NodeClaim " + b.claim + ": " + f.Message}, now)
}

// causeWaited is the cause of a fault for pods whose gates reached their time limit although their node is initialized.
const causeWaited = "not usable"

// WaitedInVain returns the fault of an instance for which a pod of the workload has waited until its gate reached the time limit, because a driver
// has not published on the node what the pod needs. Other pods may work there; for pods like this one the next node would be bought in vain, too.
func WaitedInVain(w guard.Workload, reason string) guard.Fault {
	return guard.Fault{Cause: causeWaited, Message: reason, Workloads: []guard.Workload{w}, Waited: true}
}

// RejectedByFilters records that a pod that was planned on a claim's node did not pass the scheduler's filters once its instance was there.
// beside: other pods are there, whether the informer shows them yet or not. soon: the filter will probably accept the pod soon (see willMove).
func (g *Guard) RejectedByFilters(claim string, pod *corev1.Pod, plugin, reason string, beside bool) (soon bool) {
	if g == nil || pod == nil {
		return false
	}
	w := g.WorkloadOf(pod)
	soon = g.state.willMove(w, plugin)
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.state
	b := s.instances.byClaim[claim]
	if b == nil || b.over {
		return soon
	}
	now := g.clock.Now()
	f := guard.Fault{Cause: "filter", Workloads: []guard.Workload{w}, Message: "pods that were planned there can't run there: " + reason}
	if plugin != "" {
		f.Cause, f.Message = "filter "+plugin, fmt.Sprintf("the scheduler's %s filter refuses its pods on the node as launched: %s", plugin, reason)
	}
	// This counts even if other pods are on the instance: a pod that is refused so often hasn't merely lost a race with one of them.
	if now.Sub(b.at) < thrownWithin {
		s.throw(b, w, pod, &f, now)
	}
	switch {
	case beside || b.hasOtherPods():
		return soon
	case s.breakers.Served(claim): // it works for other workloads, and may be a probe for this one
		s.breakers.Fail(claim, f, now)
		return soon
	}
	// Pods of the workload have come or gone, or are about to, or a domain that the spread counted is gone.
	f.Overtaken = soon || s.recent.moved[w].After(b.at) || plugin == pluginSpread && s.recent.nodeGone.After(b.at)
	b.thrown = append(b.thrown, f)
	return soon
}
