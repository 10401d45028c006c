package karpenter

import (
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Dovetail's own annotations and conditions.
const (
	// BatchAnnotation on a NodeClaim is the capacity.LaunchBatch it belongs to, PlannedAnnotation the []capacity.Slot planned for it,
	// LargestAnnotation the capacity.Resources it counts for against limits until it is launched.
	BatchAnnotation   = "dovetail.sh/wave"
	PlannedAnnotation = "dovetail.sh/planned"
	LargestAnnotation = "dovetail.sh/largest"
	// PurchaseAnnotation on a NodeClaim is the guard.Purchase of its instance.
	PurchaseAnnotation = "dovetail.sh/purchase"
	// GuardAnnotation on a NodePool, EC2NodeClass or Provisioner is the spending guard's record of it. Each new value of
	// RetryAnnotation asks the guard to try at once.
	GuardAnnotation = "dovetail.sh/guard"
	RetryAnnotation = "dovetail.sh/retry"
	// MaxDollarsAnnotation on a NodePool is the most that its nodes may cost together, in dollars per hour.
	MaxDollarsAnnotation = "dovetail.sh/max-dollars-per-hour"

	// malformedAnnotation exists in memory only: why an object could not be read.
	malformedAnnotation = "dovetail.sh/malformed"
	// unhonoredAnnotation exists in memory only: which fields of a derived pool's origin have no effect.
	unhonoredAnnotation = "dovetail.sh/unhonored"
	// originAnnotation exists in memory only: the user's name of the object or argument that a pool or class was derived from.
	originAnnotation = "dovetail.sh/origin"

	// FieldsHonored is the condition that is False while an object sets fields that have no effect yet.
	FieldsHonored = "dovetail.sh/FieldsHonored"
	// LaunchesPaused is the condition of a NodePool or EC2NodeClass that is True while the spending guard pauses launches.
	LaunchesPaused = "dovetail.sh/LaunchesPaused"
	// BudgetReached is the condition of a NodePool that is True while a budget keeps it from growing.
	BudgetReached = "dovetail.sh/BudgetReached"
	// Served is the condition of a NodeClaim whose instance has done what it was launched for.
	Served = "dovetail.sh/Served"
	// StartupTaintsDeclared is the condition that is False while new nodes of a pool get NoExecute taints that the pool doesn't
	// declare. UndeclaredAnnotation is the []capacity.UndeclaredTaint known of the pool.
	StartupTaintsDeclared = "dovetail.sh/StartupTaintsDeclared"
	UndeclaredAnnotation  = "dovetail.sh/undeclared-startup-taints"
	// ArchitectureDeclared is the condition that is False while neither a pool nor the pods that its nodes are planned for state
	// whether the nodes may be arm64.
	ArchitectureDeclared = "dovetail.sh/ArchitectureDeclared"
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
