package firstday

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Node is what a node has shown of itself: what tests can only assume.
type Node struct {
	InstanceType string `json:"instanceType"`
	Image        string `json:"image"`
	// Kernel, OS and Kubelet are as the kubelet reports them.
	Kernel  string `json:"kernel"`
	OS      string `json:"os"`
	Kubelet string `json:"kubelet"`
	// Registered and Initialized are seconds since the NodeClaim was created.
	Registered  float64 `json:"registered"`
	Initialized float64 `json:"initialized"`
	// Promised is the allocatable of the NodeClaim, Allocatable and Capacity are the Node's.
	Promised    map[corev1.ResourceName]string `json:"promised"`
	Allocatable map[corev1.ResourceName]string `json:"allocatable"`
	Capacity    map[corev1.ResourceName]string `json:"capacity"`

	claim string
}

// remember adds to the report what nodes show that it doesn't have yet.
func (r *Rehearsal) remember(ctx context.Context, claims []karpv1.NodeClaim) {
	for i := range claims {
		c := &claims[i]
		node := &corev1.Node{}
		if slices.ContainsFunc(r.report.Nodes, func(n Node) bool { return n.claim == c.Name }) || r.Kube.Get(ctx, client.ObjectKey{Name: c.Status.NodeName}, node) != nil {
			continue
		}
		after := func(condition string) float64 {
			return c.StatusConditions().Get(condition).LastTransitionTime.Sub(c.CreationTimestamp.Time).Seconds()
		}
		info := &node.Status.NodeInfo
		r.report.Nodes = append(r.report.Nodes, Node{claim: c.Name, InstanceType: c.Labels[corev1.LabelInstanceTypeStable], Image: c.Status.ImageID,
			Kernel: info.KernelVersion, OS: info.OSImage, Kubelet: info.KubeletVersion,
			Registered: after(karpv1.ConditionTypeRegistered), Initialized: after(karpv1.ConditionTypeInitialized),
			Promised: texts(c.Status.Allocatable), Allocatable: texts(node.Status.Allocatable), Capacity: texts(node.Status.Capacity)})
	}
}

func texts(list corev1.ResourceList) map[corev1.ResourceName]string {
	out := map[corev1.ResourceName]string{}
	for name, q := range list {
		out[name] = q.String()
	}
	return out
}

// promises compares each Node with its NodeClaim, and with what EC2 has told of the instance.
func (r *Rehearsal) promises(ctx context.Context) (string, error) {
	claims, err := r.inService(ctx, 1)
	if err != nil {
		return "", err
	}
	var wrong []error
	for i := range claims {
		c := &claims[i]
		node := &corev1.Node{}
		if err := r.Kube.Get(ctx, client.ObjectKey{Name: c.Status.NodeName}, node); err != nil {
			return "", fmt.Errorf("reading Node %s: %w", c.Status.NodeName, err)
		}
		// Devices are left out: they come with their plugins and controllers, and pods that request them are bound only then.
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
			promised := c.Status.Allocatable[name]
			if have := node.Status.Allocatable[name]; have.Cmp(promised) < 0 {
				wrong = append(wrong, fmt.Errorf("Node %s (%s) has %s of %s for pods, NodeClaim %s promised %s", node.Name, c.Labels[corev1.LabelInstanceTypeStable], have.String(), name, c.Name, promised.String()))
			}
		}
		for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, corev1.LabelArchStable, karpv1.CapacityTypeLabelKey} {
			if node.Labels[key] != c.Labels[key] {
				wrong = append(wrong, fmt.Errorf("label %s is %q on Node %s and %q on NodeClaim %s", key, node.Labels[key], node.Name, c.Labels[key], c.Name))
			}
		}
		if node.Spec.ProviderID != c.Status.ProviderID {
			wrong = append(wrong, fmt.Errorf("the provider ID is %q on Node %s and %q on NodeClaim %s", node.Spec.ProviderID, node.Name, c.Status.ProviderID, c.Name))
		}
		if !strings.HasPrefix(c.Status.ImageID, "ami-") {
			wrong = append(wrong, fmt.Errorf("NodeClaim %s names no image", c.Name))
		}
	}
	return fmt.Sprintf("%d Nodes", len(claims)), errors.Join(wrong...)
}
