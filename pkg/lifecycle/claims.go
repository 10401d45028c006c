package lifecycle

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// claims reads NodeClaims from a cache and writes them.
type claims struct{ client.Client }

// save writes what the stages changed. It writes the status first, because the last change of the metadata may delete the object.
func (c claims) save(ctx context.Context, stored, claim *karpv1.NodeClaim) error {
	want := claim.DeepCopy()
	if !equality.Semantic.DeepEqual(stored.Status, want.Status) {
		obj := stored.DeepCopy()
		obj.Status = want.Status
		patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
		if err := c.Status().Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing the status of NodeClaim %s: %w", claim.Name, err)
		}
		stored = obj
	}
	if !equality.Semantic.DeepEqual(stored.Annotations, want.Annotations) || !equality.Semantic.DeepEqual(stored.Finalizers, want.Finalizers) {
		obj := stored.DeepCopy()
		obj.Annotations, obj.Finalizers = want.Annotations, want.Finalizers
		patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
		if err := c.Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing NodeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// end deletes a claim. The UID precondition protects a new claim of the same name.
func (c claims) end(ctx context.Context, claim *karpv1.NodeClaim) error {
	err := c.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}
