package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// NodeClassProblem returns why nothing can be launched with the class, as far as its object tells; nil when it is usable.
func (s *Store) NodeClassProblem(name string) error {
	nc := s.class(name)
	if nc == nil {
		return fmt.Errorf("there is no %s %s", s.nodeClass.Kind, name)
	}
	return karpenter.NodeClassProblem("", s.nodeClass.Kind, name, nc)
}

// Take takes charge of a standalone NodeClaim before it is launched: it writes the finalizer that keeps the claim until its instance
// is terminated, the label of its node class, and the resources that it counts for until it is launched.
func (s *Store) Take(ctx context.Context, c *capacity.Claim) error {
	largest, err := karpenter.EncodeAnnotation(objects.AnnotationLargestCapacity, c.Largest)
	if err != nil {
		return fmt.Errorf("preparing NodeClaim %s for its launch: %w", c.Name, err)
	}
	purchase := ""
	if c.Purchase != nil {
		if purchase, err = karpenter.EncodeAnnotation(objects.AnnotationPurchase, c.Purchase); err != nil {
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
		metav1.SetMetaDataLabel(&nc.ObjectMeta, karpv1.NodeClassLabelKey(s.nodeClass.GroupKind()), c.NodeClass)
		metav1.SetMetaDataAnnotation(&nc.ObjectMeta, objects.AnnotationLargestCapacity, largest)
		if purchase != "" {
			nc.Annotations[objects.AnnotationPurchase] = purchase
		}
		return s.patchLocked(ctx, base, nc)
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
