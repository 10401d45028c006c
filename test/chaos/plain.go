package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PlainScheduler is the name of a profile of the same process without the product's plugins. No nodes are launched for its pods: they
// use free capacity.
const (
	PlainScheduler = "plain-scheduler"
	plainApp       = "plain"
)

// plain: a pod of a profile without the product's plugins is never bound to a Node without a kubelet, as under a plain kube-scheduler.
// Otherwise nothing would protect it from nodes that never become Ready.
func (c *checker) plain(v *view) error {
	for uid, p := range v.pods {
		was := c.last.pods[uid]
		if p.Spec.SchedulerName != PlainScheduler || p.Spec.NodeName == "" || was != nil && was.Spec.NodeName != "" {
			continue
		}
		node, before := v.nodes[p.Spec.NodeName], c.last.nodes[p.Spec.NodeName]
		if node == nil || before != nil && before.UID != node.UID {
			continue // perhaps the name belonged to another Node when the pod was bound
		}
		c.made["profiles: pods without the plugins get no Node without a kubelet"]++
		if !hasKubelet(node) {
			return fmt.Errorf("pod %s of a profile without the plugins was bound to Node %s, which no kubelet has", p.Name, node.Name)
		}
	}
	return nil
}

// hasKubelet reports whether a kubelet has ever written the Node's status.
func hasKubelet(n *corev1.Node) bool { return n.Status.NodeInfo.KubeletVersion != "" }
