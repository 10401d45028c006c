package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// requests is an amount per resource: milli-CPU for cpu, the plain value for everything else.
type requests map[corev1.ResourceName]int64

// rejection is the reason why a kubelet doesn't run a pod; the pod fails with it.
type rejection struct {
	reason, message string
}

func requestsOf(p *corev1.Pod) requests {
	out := requests{corev1.ResourcePods: 1}
	for name, q := range resource.PodRequests(p, resource.PodResourcesOptions{}) {
		if name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		} else if v := q.Value(); v > 0 {
			out[name] = v
		}
	}
	return out
}

// admit admits a pod or returns why not. A pod that is already admitted is returned as it is; one that is already running, because an
// earlier kubelet of the node started it, is admitted without a check. shown is the Node as the API server has it, nil if unknown.
func (n *node) admit(p *corev1.Pod, shown *corev1.Node, now time.Time) (*podState, *rejection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if state := n.pods[p.UID]; state != nil {
		return state, nil
	}
	state := &podState{requests: requestsOf(p)}
	if p.Status.Phase == corev1.PodRunning {
		state.starting, state.running, state.ip = now, now, p.Status.PodIP
		if p.Status.StartTime != nil {
			state.running = p.Status.StartTime.Time
		}
	} else if r := n.refusal(state.requests); r != nil {
		return nil, r
	} else if r := mismatch(p, shown); r != nil {
		return nil, r
	}
	n.pods[p.UID] = state
	return state, nil
}

// refusal returns why the node can't hold the requests beside the pods it has, or nil if it can.
func (n *node) refusal(want requests) *rejection {
	have := n.allocatable(n.stage)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		q, known := have[name]
		_, device := n.shape.devices[name]
		if !known && !device && extended(name) {
			continue // the node has no such resource; like the real kubelet, leave it to the scheduler
		}
		total := q.Value()
		if name == corev1.ResourceCPU {
			total = q.MilliValue()
		}
		used := int64(0)
		for _, other := range n.pods {
			used += other.requests[name]
		}
		if want[name] <= total-used {
			continue
		}
		if device {
			return &rejection{"UnexpectedAdmissionError", fmt.Sprintf(
				"Allocate failed due to requested number of devices unavailable for %s. Requested: %d, Available: %d, which is unexpected", name, want[name], total-used)}
		}
		return &rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, want[name], used, total)}
	}
	return nil
}

// mismatch returns why a pod doesn't belong on the node, whatever its free capacity. The kubelet checks this once, when it first sees
// the pod.
func mismatch(p *corev1.Pod, shown *corev1.Node) *rejection {
	if shown == nil {
		return nil
	}
	if ok, _ := nodeaffinity.GetRequiredNodeAffinity(p).Match(shown); !ok {
		return &rejection{"NodeAffinity", "node(s) didn't match Pod's node affinity/selector"}
	}
	if _, bad := corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), shown.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, false); bad {
		return &rejection{"TaintToleration", "node(s) had taints that the pod didn't tolerate"}
	}
	return nil
}

func (n *node) state(uid podUID) (*podState, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.pods[uid]
	return s, ok
}

// free releases the requests of a pod that has not been deleted yet.
func (n *node) free(uid podUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.pods[uid]; s != nil {
		s.requests = nil
	}
}

func (n *node) forget(uid podUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, uid)
}
