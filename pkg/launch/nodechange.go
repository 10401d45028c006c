package launch

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// NodeChanged is called when the scheduler's cache has added or updated a Node; before is nil if it was added. A Node that was deleted and
// created again under its name while the watch was interrupted is reported as an update, too.
func (tr *NodeTracker) NodeChanged(before, now *corev1.Node) {
	if before != nil && before.UID != now.UID {
		tr.NodeUncached(before)
		before = nil
	}
	tr.NodeCached(now)
	if roomier(before, now) {
		tr.triggers.CapacityAppeared(!tr.states.comingUp(before, now) && !recovered(before, now))
	}
}

// recovered reports whether the node has only lost health taints, of a kubelet that was late to report, say. Its capacity was there before.
func recovered(before, now *corev1.Node) bool {
	if before == nil {
		return false
	}
	well := *before
	well.Spec.Taints = slices.DeleteFunc(slices.Clone(before.Spec.Taints), func(t corev1.Taint) bool {
		return strings.HasPrefix(t.Key, "node.kubernetes.io/")
	})
	return !roomier(&well, now)
}

// comingUp reports whether the change belongs to the start of a managed node: it wasn't initialized before.
func (s *nodeStates) comingUp(before, now *corev1.Node) bool {
	return s.nodeClass.Managed(now) && (before == nil || before.Labels[labelInitialized] != "true")
}

// roomier reports whether pods that did not fit on the node before may fit now.
func roomier(before, now *corev1.Node) bool {
	if before == nil {
		return true
	}
	if before.Spec.Unschedulable && !now.Spec.Unschedulable || len(before.Spec.Taints) > len(now.Spec.Taints) ||
		before.Labels[labelInitialized] != now.Labels[labelInitialized] {
		return true
	}
	for name, q := range now.Status.Allocatable {
		if old := before.Status.Allocatable[name]; q.Cmp(old) > 0 {
			return true
		}
	}
	return false
}
