package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
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

// uninitialized asks a cloud controller manager for what it knows of the instance: labels of the network topology, external addresses. It
// looks at no new Node without it (cloud-provider, node_controller.go), and takes it off when it is done. A kubelet puts it on its Node
// only if it creates that itself.
var uninitialized = corev1.Taint{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}
