package kubelet

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// health is what is wrong with a node.
type health struct {
	silent bool
	// failing are the conditions that are False, and since when.
	failing map[corev1.NodeConditionType]metav1.Time
}

func (k *Kubelets) healthOf(id string) health {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.unhealthy[id]; i != nil {
		return health{i.silent, maps.Clone(i.failing)}
	}
	return health{}
}

// Silence has the kubelet of an instance do nothing any more, as if it hung, while the instance runs on.
func (k *Kubelets) Silence(id string) {
	k.change(id, func(i *health) { i.silent = true })
}

// Fail sets a condition of an instance's node to False: Ready by its kubelet, others as EKS's node monitoring agent does.
func (k *Kubelets) Fail(id string, condition corev1.NodeConditionType) {
	k.change(id, func(i *health) { i.failing[condition] = metav1.NewTime(k.clock.Now()) })
}

// Recover makes an instance's node healthy again.
func (k *Kubelets) Recover(id string) {
	k.mu.Lock()
	delete(k.unhealthy, id)
	n := k.nodes[id]
	k.mu.Unlock()
	k.report(id)
	if n != nil {
		k.wakePods(n)
	}
}

// differs is node.differs, unless the kubelet itself reports that its node isn't Ready, or nothing.
func (k *Kubelets) differs(n *node, shown *corev1.Node) bool {
	i := k.healthOf(n.machine.ID)
	_, failing := i.failing[corev1.NodeReady]
	return !failing && !i.silent && n.differs(shown)
}

func (k *Kubelets) change(id string, change func(*health)) {
	k.mu.Lock()
	if k.unhealthy[id] == nil {
		k.unhealthy[id] = &health{failing: map[corev1.NodeConditionType]metav1.Time{}}
	}
	change(k.unhealthy[id])
	k.mu.Unlock()
	k.report(id)
}

// report has a kubelet report its node's status soon.
func (k *Kubelets) report(id string) {
	k.mu.Lock()
	if n := k.nodes[id]; n != nil {
		n.mu.Lock()
		n.reports = true
		n.mu.Unlock()
	}
	k.mu.Unlock()
	k.queue.Add(task{key: id})
}

// conditions returns a healthy node's conditions as they are now.
func (i health) conditions(out []corev1.NodeCondition) []corev1.NodeCondition {
	for _, kind := range slices.Sorted(maps.Keys(i.failing)) {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: "Simulated", Message: "the node is unhealthy", LastTransitionTime: i.failing[kind], LastHeartbeatTime: out[0].LastHeartbeatTime}
		if at := slices.IndexFunc(out, func(o corev1.NodeCondition) bool { return o.Type == kind }); at >= 0 {
			out[at] = c
		} else {
			out = append(out, c)
		}
	}
	return out
}
