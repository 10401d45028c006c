package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	lastApplied     = "kubectl.kubernetes.io/last-applied-configuration"
	betaArch        = "beta.kubernetes.io/arch"
	betaOS          = "beta.kubernetes.io/os"
	csiTopologyZone = "topology.ebs.csi.aws.com/zone"
	// excludeDisruption keeps a Node whose kubelet has not registered out of the node lifecycle controller's count of unhealthy zones.
	excludeDisruption = "node.kubernetes.io/exclude-disruption"
)

// aliases maps label keys to the keys that they stand for (Karpenter's normalized labels).
var aliases = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	betaArch:                            corev1.LabelArchStable,
	betaOS:                              corev1.LabelOSStable,
	csiTopologyZone:                     corev1.LabelTopologyZone,
}

// Normalize returns the current key that a requirement's key stands for.
func Normalize(key string) string {
	if k, ok := aliases[key]; ok {
		return k
	}
	return key
}

// unregistered keeps pods of all other schedulers off a node until it is registered. Karpenter's taint has the effect NoExecute; ours
// hasn't, because the taint manager would delete the pods that are bound while the node boots.
var unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}
