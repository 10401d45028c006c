package fakecloud

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// boot is what the kubelets of all instances do: each posts its status on the Node that was created for it.
func (c *Cloud) boot(ctx context.Context) {
	instances, err := c.List(ctx)
	if err != nil {
		return
	}
	for i := range instances {
		node, err := c.kube.CoreV1().Nodes().Get(ctx, instances[i].NodeName, metav1.GetOptions{})
		if err != nil || node.Spec.ProviderID != instances[i].ProviderID || node.Status.NodeInfo.KubeletVersion != "" {
			continue // not created yet, or posted before
		}
		node.Status.NodeInfo.KubeletVersion = "v1.36.0"
		node.Status.Capacity, node.Status.Allocatable = machine.Capacity.List(), machine.Allocatable.List()
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}}
		if _, err := c.kube.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			klog.FromContext(ctx).Info("The kubelet could not post its status; it will again", "node", node.Name, "err", err)
		}
	}
}
