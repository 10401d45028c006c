package karpenter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// orderOf returns the request of a NodeClaim that no plan created; nil for those that a plan created.
func orderOf(nc *karpv1.NodeClaim, batch *capacity.LaunchBatch, class schema.GroupKind) *capacity.Order {
	if _, planned := nc.Annotations[objects.AnnotationLaunchBatch]; planned && (batch == nil || batch.For != capacity.ForOrder) {
		return nil
	}
	o := &capacity.Order{Provisioned: slices.ContainsFunc(nc.OwnerReferences, ownedByPool)}
	if ref := metav1.GetControllerOfNoCopy(nc); ref != nil {
		o.Owner = ref.Kind + "/" + ref.Name
	}
	if errs := validateClaim(nc, class); len(errs) > 0 {
		o.Invalid = joinErrors(errs)
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

// NodeClassProblem returns why nothing can be launched with the class, as far as its object tells; empty when it is usable.
func (s *Store) NodeClassProblem(name string) string {
	nc := s.class(name)
	if nc == nil {
		return fmt.Sprintf("there is no %s %s", s.nodeClass.Kind, name)
	}
	return nodeClassProblem("", s.nodeClass.Kind, name, nc)
}

// Take takes charge of a standalone NodeClaim before it is launched: it writes the finalizer that keeps the claim until its instance
// is terminated, the label of its node class, and the resources that it counts for until it is launched.
func (s *Store) Take(ctx context.Context, c *capacity.Claim) error {
	largest, err := encodeAnnotation(objects.AnnotationLargestCapacity, c.Largest)
	if err != nil {
		return fmt.Errorf("preparing NodeClaim %s for its launch: %w", c.Name, err)
	}
	purchase := ""
	if c.Purchase != nil {
		if purchase, err = encodeAnnotation(objects.AnnotationPurchase, c.Purchase); err != nil {
			return fmt.Errorf("preparing NodeClaim %s for its launch: %w", c.Name, err)
		}
	}
	ask := false
	err = onConflictAgain(func() error {
		base, err := s.the(ctx, c, ask)
		if err != nil {
			return err
		}
		ask = true
		if !base.DeletionTimestamp.IsZero() {
			return errors.New("it is being deleted")
		}
		nc := base.DeepCopy()
		if !slices.Contains(nc.Finalizers, karpv1.TerminationFinalizer) {
			nc.Finalizers = append(nc.Finalizers, karpv1.TerminationFinalizer)
		}
		nc.Labels = merged(nc.Labels, map[string]string{karpv1.NodeClassLabelKey(s.nodeClass.GroupKind()): c.NodeClass})
		nc.Annotations = merged(nc.Annotations, map[string]string{objects.AnnotationLargestCapacity: largest})
		if purchase != "" {
			nc.Annotations[objects.AnnotationPurchase] = purchase
		}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		if err := s.live.Patch(ctx, nc, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
		s.keepOwn(nc)
		return nil
	})
	if err != nil {
		return fmt.Errorf("preparing NodeClaim %s for its launch: %w", c.Name, err)
	}
	return nil
}

// RecordRefused records on a standalone NodeClaim why nothing is launched for it: in its condition and, if the message is new, in an
// event. again means that another launch will be tried.
func (s *Store) RecordRefused(ctx context.Context, name, reason, message string, again bool) error {
	var news *karpv1.NodeClaim
	err := s.patchStatus(ctx, &capacity.Claim{Name: name}, func(nc *karpv1.NodeClaim) {
		news = nil
		reason, message := conditionReason(reason, "LaunchFailed"), shorten(message)
		if c := nc.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeLaunched); c == nil || c.Message != message {
			news = nc
		}
		set := nc.StatusConditions(status.WithClock(s.clock))
		if again {
			set.SetUnknownWithReason(karpv1.ConditionTypeLaunched, reason, message)
		} else {
			set.SetFalse(karpv1.ConditionTypeLaunched, reason, message)
		}
	})
	if err == nil && news != nil {
		s.recorder.Eventf(news, nil, corev1.EventTypeWarning, conditionReason(reason, "LaunchFailed"), "Launch", "%s", shorten(message))
	}
	return err
}
