package karpenter

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// foreignGroup returns the API group of another provider's node class that the pool or claim refers to, or "". EKS Auto Mode and
// providers for other clouds store their NodePools and NodeClaims under the same definitions. Those belong to them alone: nothing is
// launched for them, written to them or terminated. An unknown kind within the group of our class is a mistake, which is reported to its
// owner, and so is our kind within another group: no other provider has it.
func foreignGroup(o client.Object, class schema.GroupKind) string {
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
// rule is capacity.Managed.
func OfAnotherProvider(o client.Object, class schema.GroupKind) bool {
	return foreignGroup(o, class) != ""
}

// withoutForeign returns the event that the cache gets for a watch event; false means none. An object that has changed to another
// provider's is reported to the cache as deleted.
func withoutForeign(e watch.Event, class schema.GroupKind, have cache.KeyGetter) (watch.Event, bool) {
	o, ok := e.Object.(client.Object)
	if !ok || e.Type == watch.Bookmark || e.Type == watch.Error {
		return e, true
	}
	group := foreignGroup(o, class)
	if group == "" {
		return e, true
	}
	if e.Type == watch.Added {
		leftAlone(o, group)
	}
	if _, known, err := have.GetByKey(o.GetName()); err != nil || !known {
		return e, false
	}
	e.Type = watch.Deleted
	return e, true
}

// leftAlone logs an ignored object once per object and watch, because its group or kind may be a typing error.
func leftAlone(o client.Object, group string) {
	klog.Background().V(2).Info("Not managed: its node class belongs to another provider", "object", klog.KObj(o), "group", group)
}
