package chaos

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// PlainScheduler is the name of a profile of the same process that has none of the product's plugins. Its pods are nobody's demand:
// they get what room there is.
const (
	PlainScheduler = "plain-scheduler"
	plainApp       = "plain"
)

// plain: a pod of a profile without the product's plugins is never bound to a Node that no kubelet has, as under a plain kube-scheduler.
// Nobody would keep it from nodes that don't come up.
func (c *checker) plain(v *view) error {
	for uid, p := range v.pods {
		was := c.last.pods[uid]
		if p.Spec.SchedulerName != PlainScheduler || p.Spec.NodeName == "" || was != nil && was.Spec.NodeName != "" {
			continue
		}
		node, before := v.nodes[p.Spec.NodeName], c.last.nodes[p.Spec.NodeName]
		if node == nil || before != nil && before.UID != node.UID {
			continue // it had another when the pod was bound, perhaps
		}
		c.made["profiles: pods without the plugins get no Node without a kubelet"]++
		if !hasKubelet(node) {
			return fmt.Errorf("pod %s of a profile without the plugins was bound to Node %s, which no kubelet has", p.Name, node.Name)
		}
	}
	return nil
}

// hasKubelet says that a kubelet has ever written the Node's status.
func hasKubelet(n *corev1.Node) bool { return n.Status.NodeInfo.KubeletVersion != "" }
