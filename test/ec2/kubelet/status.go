package kubelet

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// postStatus reports the node's status at a stage to the API server.
func (k *Kubelets) postStatus(ctx context.Context, n *node, s stage) error {
	status := k.status(n, s)
	patch := map[string]any{
		"conditions": status.Conditions, "addresses": status.Addresses, "capacity": status.Capacity, "allocatable": status.Allocatable, "nodeInfo": status.NodeInfo,
		"daemonEndpoints": status.DaemonEndpoints,
	}
	if status.DeclaredFeatures != nil {
		patch["declaredFeatures"] = status.DeclaredFeatures
	}
	return k.patchNode(ctx, n, map[string]any{"status": patch})
}

// allocatable returns the allocatable resources at a stage; devices are included in the last one only.
func (n *node) allocatable(s stage) corev1.ResourceList {
	out := maps.Clone(n.shape.allocatable)
	if s == complete {
		maps.Copy(out, n.shape.devices)
	}
	return out
}

func (k *Kubelets) status(n *node, s stage) corev1.NodeStatus {
	m := &n.machine
	capacity := maps.Clone(n.shape.capacity)
	if s == complete {
		maps.Copy(capacity, n.shape.devices)
	}
	id := strings.TrimPrefix(m.ID, "i-")
	return corev1.NodeStatus{
		Capacity: capacity, Allocatable: n.allocatable(s), Conditions: k.conditions(n, s), DeclaredFeatures: k.cfg.DeclaredFeatures,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: m.PrivateIP}, {Type: corev1.NodeHostName, Address: m.PrivateDNSName}, {Type: corev1.NodeInternalDNS, Address: m.PrivateDNSName},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: "ec2" + id, SystemUUID: "ec2" + id, BootID: id, KernelVersion: "6.12.40-63.114.amzn2023." + m.Type.Arch[len(m.Type.Arch)-1],
			OSImage: "Amazon Linux 2023 (simulated)", ContainerRuntimeVersion: "containerd://2.1.5", KubeletVersion: k.cfg.Version, OperatingSystem: "linux",
			Architecture: architecture(n),
		},
	}
}

func (k *Kubelets) conditions(n *node, s stage) []corev1.NodeCondition {
	now, since := metav1.NewTime(k.clock.Now()), metav1.NewTime(n.transition)
	out := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	}
	if s == registered {
		out[3].Status, out[3].Reason = corev1.ConditionFalse, "KubeletNotReady"
		out[3].Message = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"
	}
	for i := range out {
		out[i].LastHeartbeatTime, out[i].LastTransitionTime = now, since
	}
	return k.healthOf(n.machine.ID).conditions(out)
}
