package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Labels by which Karpenter's nodes are known, and how far they have come.
const (
	LabelNodePool    = "karpenter.sh/nodepool"
	LabelNodeClass   = "karpenter.k8s.aws/ec2nodeclass"
	LabelRegistered  = "karpenter.sh/registered"
	LabelInitialized = "karpenter.sh/initialized"
)

// labelComputeType is "auto" on the nodes of EKS Auto Mode.
const labelComputeType = "eks.amazonaws.com/compute-type"

// Managed says that the Node was made for a NodeClaim of ours: it has the label of a pool, or, where the claim has none, its claim as an
// owner. It is the only place that decides it. Nodes of another provider are not managed: EKS Auto Mode and others use the same labels
// and owners. Nothing is written on them, terminated with them or waited for on them. (Their NodePools and NodeClaims are kept out of
// pkg/karpenter's cache.)
func Managed(node *corev1.Node) bool {
	if OfAnotherProvider(node) {
		return false
	}
	if _, pool := node.Labels[LabelNodePool]; pool {
		return true
	}
	for i := range node.OwnerReferences {
		if ref := &node.OwnerReferences[i]; ref.Kind == "NodeClaim" && strings.HasPrefix(ref.APIVersion, "karpenter.sh/") {
			return true
		}
	}
	return false
}

// OfAnotherProvider says that the Node bears the label of a node class, which providers form as GROUP/KIND, and not of ours, or is one
// of EKS Auto Mode, which may not have got its labels yet.
func OfAnotherProvider(node *corev1.Node) bool {
	if _, own := node.Labels[LabelNodeClass]; own {
		return false
	}
	if node.Labels[labelComputeType] == "auto" {
		return true
	}
	for key := range node.Labels {
		if strings.Contains(key, "/") && strings.HasSuffix(key, "nodeclass") {
			return true
		}
	}
	return false
}
