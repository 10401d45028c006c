package pending

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// victimPatience is how long the victims of a preemption may take to end before a node is launched for the pod after all. If their grace
// periods are longer, they may take that time and victimMargin more, in which the kubelet reports their end, but at most longestPatience: a new
// node takes less time than that.
const (
	victimPatience  = 30 * time.Second
	victimMargin    = 10 * time.Second
	longestPatience = 3 * time.Minute
)

// preemptionPatience is how long it may take until the victims begin to end. The pod is nominated before they are deleted, in the
// background, and the API server may throttle that.
const preemptionPatience = 15 * time.Second

// Nominees are the pods that wait until the victims of a preemption have ended. One goroutine uses it.
type Nominees struct {
	pods    *Pods
	waiting map[types.UID]nominee
}

// nominee is a pod that waits for victims. since is when it was first seen nominated or, once ending is set, when they were first seen terminating.
type nominee struct {
	node   string
	since  time.Time
	ending bool
}

// NewNominees returns the nominees among the pods, none at first.
func NewNominees(p *Pods) *Nominees { return &Nominees{pods: p, waiting: map[types.UID]nominee{}} }

// Tidy forgets pods that don't wait for a node any more.
func (n *Nominees) Tidy() {
	for uid := range n.waiting {
		if n.pods.Get(uid) == nil {
			delete(n.waiting, uid)
		}
	}
}

// Waits returns the node on which a pod waits for victims, and when to ask again; empty: it waits for none. It no longer waits for victims
// that don't end in time (a dead kubelet, a finalizer), nor once they have ended: if the scheduler hasn't used their capacity, it was not
// enough.
func (n *Nominees) Waits(uid types.UID, now time.Time) (node string, until time.Time) {
	pod := n.pods.Get(uid)
	if pod == nil || pod.Status.NominatedNodeName == "" {
		delete(n.waiting, uid)
		return "", until
	}
	node = pod.Status.NominatedNodeName
	first, known := n.waiting[uid]
	deadline, ending := n.pods.PodsEnding(node)
	if !known || first.node != node || ending && !first.ending {
		first = nominee{node, now, ending}
		n.waiting[uid] = first
	}
	patience := preemptionPatience
	if first.ending {
		patience = max(victimPatience, min(deadline.Add(victimMargin).Sub(first.since), longestPatience))
	}
	until = first.since.Add(patience)
	if first.ending && !ending || !now.Before(until) {
		return "", until
	}
	if next := now.Add(victimPatience); next.Before(until) {
		until = next // the victims may have ended by then, and their capacity may not be enough
	}
	return node, until
}

// PodsEnding reports whether pods of the node are being deleted, so that capacity will be free there, and when the last of their grace periods
// is over.
func (p *Pods) PodsEnding(node string) (deadline time.Time, ending bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.ending[node] {
		if at.After(deadline) {
			deadline = at
		}
	}
	return deadline, len(p.ending[node]) > 0
}

// ending are, per node, the bound pods that are being deleted, with the time at which each one's grace period is over.
type ending map[string]map[types.UID]time.Time

// count replaces a pod's old state by the new one. old is nil when the pod appears, pod when it is gone.
func (e ending) count(old, pod *corev1.Pod) {
	if node := leaves(old); node != "" {
		if delete(e[node], old.UID); len(e[node]) == 0 {
			delete(e, node)
		}
	}
	if node := leaves(pod); node != "" {
		if e[node] == nil {
			e[node] = map[types.UID]time.Time{}
		}
		e[node][pod.UID] = pod.DeletionTimestamp.Time // the API server has added the grace period
	}
}

// leaves returns the node on which the pod is being deleted; empty: none.
func leaves(pod *corev1.Pod) string {
	if pod == nil || pod.DeletionTimestamp == nil {
		return ""
	}
	return pod.Spec.NodeName
}
