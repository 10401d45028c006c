package nodeclass

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// repairPolicies are those of Karpenter's AWS provider. The conditions other than Ready are set by EKS's node monitoring agent.
func repairPolicies() []cloudprovider.RepairPolicy {
	const (
		usual = 30 * time.Minute
		// accelerators: a GPU that has failed doesn't come back, and costs much.
		accelerators = 10 * time.Minute
		// impaired: EC2 repeats its checks each minute.
		impaired = 2 * time.Minute
	)
	return []cloudprovider.RepairPolicy{
		{Condition: corev1.NodeReady, Status: corev1.ConditionFalse, Toleration: usual},
		{Condition: corev1.NodeReady, Status: corev1.ConditionUnknown, Toleration: usual},
		{Condition: "AcceleratedHardwareReady", Status: corev1.ConditionFalse, Toleration: accelerators},
		{Condition: "StorageReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Condition: "NetworkingReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Condition: "KernelReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Condition: "ContainerRuntimeReady", Status: corev1.ConditionFalse, Toleration: usual},
		{Condition: cloudprovider.InstanceStatus, Status: corev1.ConditionFalse, Toleration: impaired},
	}
}
