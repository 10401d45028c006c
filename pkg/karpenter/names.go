package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Annotations of Dovetail's own.
const (
	// BatchAnnotation on a NodeClaim is the capacity.Wave it belongs to, PlannedAnnotation the []capacity.Slot planned for
	// it, LargestAnnotation the capacity.Resources it counts for against limits until it is launched.
	BatchAnnotation   = "dovetail.sh/wave"
	PlannedAnnotation = "dovetail.sh/planned"
	LargestAnnotation = "dovetail.sh/largest"
	// PurchaseAnnotation on a NodeClaim is the guard.Purchase of its machine.
	PurchaseAnnotation = "dovetail.sh/purchase"
	// GuardAnnotation on a NodePool, EC2NodeClass or Provisioner is what the spending guard keeps of it, RetryAnnotation asks it, with
	// each new value, to try at once.
	GuardAnnotation = "dovetail.sh/guard"
	RetryAnnotation = "dovetail.sh/retry"
	// MaxDollarsAnnotation on a NodePool is what its nodes may cost at most, in dollars per hour.
	MaxDollarsAnnotation = "dovetail.sh/max-dollars-per-hour"

	// malformedAnnotation exists in memory only: why an object could not be read.
	malformedAnnotation = "dovetail.sh/malformed"
	// unhonoredAnnotation exists in memory only: what of a derived pool's origin has no effect.
	unhonoredAnnotation = "dovetail.sh/unhonored"
	// originAnnotation exists in memory only: the user's name of what a pool or class was derived from.
	originAnnotation = "dovetail.sh/origin"

	// FieldsHonored is the condition that is False while an object sets fields that have no effect yet.
	FieldsHonored = "dovetail.sh/FieldsHonored"
	// LaunchesPaused is the condition of a NodePool or EC2NodeClass that is True while the spending guard holds launches back.
	LaunchesPaused = "dovetail.sh/LaunchesPaused"
	// BudgetReached is the condition of a NodePool that is True while a budget keeps it from growing.
	BudgetReached = "dovetail.sh/BudgetReached"
	// Served is the condition of a NodeClaim whose machine has done work.
	Served = "dovetail.sh/Served"
	// StartupTaintsDeclared is the condition that is False while fresh nodes of a pool get NoExecute taints that it doesn't declare, and
	// UndeclaredAnnotation the []capacity.UndeclaredTaint that are known of it.
	StartupTaintsDeclared = "dovetail.sh/StartupTaintsDeclared"
	UndeclaredAnnotation  = "dovetail.sh/undeclared-startup-taints"
	// ArchitectureDeclared is the condition that is False while neither a pool nor pods that nodes of it are planned for say whether they may
	// be arm64.
	ArchitectureDeclared = "dovetail.sh/ArchitectureDeclared"
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
