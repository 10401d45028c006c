package karpenter

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// orderOf returns the request of a NodeClaim that no plan created; nil for those that a plan created.
func orderOf(nc *karpv1.NodeClaim, batch *capacity.LaunchBatch, class schema.GroupKind) *capacity.Order {
	if _, planned := nc.Annotations[objects.AnnotationLaunchBatch]; planned && (batch == nil || batch.For != capacity.ForOrder) {
		return nil
	}
	o := &capacity.Order{Provisioned: slices.ContainsFunc(nc.OwnerReferences, OwnedByPool)}
	if ref := metav1.GetControllerOfNoCopy(nc); ref != nil {
		o.Owner = ref.Kind + "/" + ref.Name
	}
	if errs := validateClaim(nc, class); len(errs) > 0 {
		o.Invalid = JoinErrors(errs)
		return o
	}
	var err error
	if o.Requirements, err = poolRequirements(nc.Spec.Requirements, nc.Labels); err != nil {
		o.Invalid = fmt.Sprintf("spec.requirements: %v", err)
	} else if r, ok := o.Requirements.Impossible(); ok {
		o.Invalid = fmt.Sprintf("spec.requirements: with the labels of the claim %s", r)
	}
	return o
}

// validateClaim returns an error for each invalid field of a NodeClaim.
func validateClaim(nc *karpv1.NodeClaim, class schema.GroupKind) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	t := karpv1.NodeClaimTemplateSpec{
		Taints: nc.Spec.Taints, StartupTaints: nc.Spec.StartupTaints, NodeClassRef: nc.Spec.NodeClassRef,
		ExpireAfter: nc.Spec.ExpireAfter, TerminationGracePeriod: nc.Spec.TerminationGracePeriod,
	}
	errs = validateTemplate(&t, class, spec)
	for i := range nc.Spec.Requirements {
		r := &nc.Spec.Requirements[i]
		if r.Key != karpv1.NodePoolLabelKey { // pools may not have a requirement on this key, claims may
			errs = append(errs, validateRequirement(r, spec.Child("requirements").Index(i))...)
		}
	}
	at := spec.Child("resources", "requests")
	for _, name := range slices.Sorted(maps.Keys(nc.Spec.Resources.Requests)) {
		if q := nc.Spec.Resources.Requests[name]; q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must not be negative"))
		}
	}
	return errs
}
