package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Labels that identify Karpenter's nodes and show their state.
const (
	LabelNodePool    = "karpenter.sh/nodepool"
	LabelRegistered  = "karpenter.sh/registered"
	LabelInitialized = "karpenter.sh/initialized"
)

// labelComputeType is "auto" on the nodes of EKS Auto Mode.
const labelComputeType = "eks.amazonaws.com/compute-type"

// NodeClassLabel says by which labels a Node is recognized as managed.
type NodeClassLabel struct {
	// Key is the label with the name of a node's node class. Its form is GROUP/KIND, so each provider has its own.
	Key string
	// ManagedBy is the name of this Dovetail, and the value of the label dovetail.sh/managed-by on its nodes. If it is empty, Dovetail has no
	// name, and its nodes don't have the label. If it is Anyone, nodes of every Dovetail are managed.
	ManagedBy string
}

// Anyone is a value of ManagedBy for programs that look at a cluster and change nothing. No Dovetail can have this name.
const Anyone = "*"

// Managed reports whether the Node was made for a NodeClaim of this Dovetail: it has a pool's label or, if the claim has none,
// the claim as an owner. Nothing else decides this. Nodes of another provider are unmanaged, although EKS Auto Mode and others use the
// same labels and owners, and so are those of another Dovetail: nothing is written to them, they are never terminated, and nothing waits
// for them. (pkg/karpenter's cache excludes their NodePools and NodeClaims.)
func (l NodeClassLabel) Managed(node *corev1.Node) bool {
	if l.OfAnotherProvider(node) || l.ManagedBy != Anyone && node.Labels[objects.LabelManagedBy] != l.ManagedBy {
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

// OfAnotherProvider reports whether the Node has the label of another provider's node class, or belongs to EKS Auto Mode, whose nodes may
// not have that label yet.
func (l NodeClassLabel) OfAnotherProvider(node *corev1.Node) bool {
	if _, own := node.Labels[l.Key]; own {
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

// Booting reports whether the scheduler's copy of a Node is that of a managed node that has not registered. Only managed nodes have hidden taints.
func Booting(node *corev1.Node) bool {
	_, hides := node.Annotations[objects.AnnotationHiddenTaints]
	return hides && node.Labels[LabelRegistered] != "true" && node.Labels[LabelInitialized] != "true"
}
