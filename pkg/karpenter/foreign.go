package karpenter

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// ForeignGroup returns the API group of another provider's node class that the pool or claim refers to, or "". EKS Auto Mode and
// providers for other clouds store their NodePools and NodeClaims under the same definitions. Those belong to them alone: nothing is
// launched for them, written to them or terminated. An unknown kind within the group of our class is a mistake, which is reported to its
// owner, and so is our kind within another group: no other provider has it.
func ForeignGroup(o client.Object, class schema.GroupKind) string {
	var ref *karpv1.NodeClassReference
	switch o := o.(type) {
	case *karpv1.NodePool:
		ref = o.Spec.Template.Spec.NodeClassRef
	case *karpv1.NodeClaim:
		ref = o.Spec.NodeClassRef
	}
	if ref == nil || ref.Group == class.Group || ref.Kind == class.Kind {
		return ""
	}
	return ref.Group
}

// OfAnotherProvider reports whether a NodePool or NodeClaim belongs to another provider than that of class, for example EKS Auto Mode. For Nodes the same
// rule is capacity.NodeClassLabel.Managed.
func OfAnotherProvider(o client.Object, class schema.GroupKind) bool {
	return ForeignGroup(o, class) != ""
}
