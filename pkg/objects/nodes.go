package objects

import corev1 "k8s.io/api/core/v1"

// ReadyCondition returns the Node's Ready condition, or nil.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// Ready reports whether the Node's Ready condition is True.
func Ready(node *corev1.Node) bool {
	c := ReadyCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

// InternalIP returns the first internal address of the Node, or "".
func InternalIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// Posted reports whether the Node's kubelet has posted its status at least once. A Ready condition alone doesn't show that: the node
// lifecycle controller writes one for a kubelet that it never heard from.
func Posted(node *corev1.Node) bool {
	if node.Status.NodeInfo.KubeletVersion != "" {
		return true
	}
	c := ReadyCondition(node)
	return c != nil && c.Reason != "NodeStatusNeverUpdated"
}
