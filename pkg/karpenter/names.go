package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// excludeDisruption keeps a Node whose kubelet has not registered out of the node lifecycle controller's count of unhealthy zones.
	excludeDisruption = "node.kubernetes.io/exclude-disruption"
)

// unregistered keeps pods of all other schedulers off a node until it is registered. Karpenter's taint has the effect NoExecute; ours
// hasn't, because the taint manager would delete the pods that are bound while the node boots.
var unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}
