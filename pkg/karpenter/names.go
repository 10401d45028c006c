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
	// excludeDisruption keeps a node that is not there yet out of the node lifecycle controller's count of sick zones.
	excludeDisruption = "node.kubernetes.io/exclude-disruption"
)

// aliases are label keys that mean another one (Karpenter's normalised labels).
var aliases = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	betaArch:                            corev1.LabelArchStable,
	betaOS:                              corev1.LabelOSStable,
	csiTopologyZone:                     corev1.LabelTopologyZone,
}

// Normalize gives the key that a requirement's key stands for.
func Normalize(key string) string {
	if k, ok := aliases[key]; ok {
		return k
	}
	return key
}

// unregistered keeps everybody but us off a node until it is registered. The effect is not Karpenter's NoExecute: the taint
// manager would delete the pods that are bound while the node boots.
var unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}
