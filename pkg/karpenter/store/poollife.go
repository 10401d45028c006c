package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

const reasonPoolDeleted = "NodePoolDeleted"

// endOwned deletes the claims whose pool was deleted; their nodes are drained then like those of any deleted claim. The cluster's
// garbage collector, if there is one, does the same by the owner references, in its own time. endOwned makes the same decisions:
//
//	owner exists, with the UID that the claim names             claim stays
//	owner is being deleted, and its dependents are orphaned     claim stays: the references are about to be removed
//	owner is being deleted otherwise, or doesn't exist          claim is deleted
//	another object has the owner's name by now                  claim is deleted: its creator no longer exists
//	no owner, several owners, or an owner that is no pool       claim stays
//
// The deletion of a claim can't be undone. So the cache is used only to find candidates: the API server itself must confirm that the
// owner doesn't exist, and that the claim is still the version we decided about.
func (p *poolStatus) endOwned(ctx context.Context, pool string) error {
	claims := p.bereft(pool)
	if len(claims) == 0 {
		return nil
	}
	owner, there, err := p.readOwner(ctx, claims[0].OwnerReferences[0])
	if err != nil {
		return err
	}
	stays := there && (owner.DeletionTimestamp.IsZero() || slices.Contains(owner.Finalizers, metav1.FinalizerOrphanDependents))
	var errs []error
	for _, nc := range claims {
		if !stays || owner.UID != nc.OwnerReferences[0].UID {
			errs = append(errs, p.endWithPool(ctx, nc))
		}
	}
	return errors.Join(errs...)
}

// bereft returns the claims whose only owner is the pool of that name, or the Provisioner that it was derived from, and whose owner
// doesn't exist or is being deleted, according to the cache.
func (p *poolStatus) bereft(pool string) []*karpv1.NodeClaim {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var uid types.UID
	if one := p.parsed[pool]; one != nil && one.object.DeletionTimestamp.IsZero() {
		uid = one.object.UID
	}
	var out []*karpv1.NodeClaim
	for _, k := range p.known {
		nc := k.object
		if nc.DeletionTimestamp.IsZero() && len(nc.OwnerReferences) == 1 && poolOfOwner(nc.OwnerReferences[0]) == pool && nc.OwnerReferences[0].UID != uid {
			out = append(out, nc)
		}
	}
	return out
}

// poolOfOwner returns the name of the pool that a claim's owner reference stands for, or "".
func poolOfOwner(o metav1.OwnerReference) string {
	switch {
	case !karpenter.OwnedByPool(o):
		return ""
	case o.Kind == karpenter.Provisioners.Kind:
		return karpenter.PoolOfProvisioner(o.Name)
	}
	return o.Name
}

// readOwner asks the API server for a pool or a Provisioner. It accepts "not found" only for a kind that is served: without its
// definition nothing is known about the object.
func (p *poolStatus) readOwner(ctx context.Context, ref metav1.OwnerReference) (owner *metav1.PartialObjectMetadata, there bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	k := karpenter.NodePools
	if ref.Kind == karpenter.Provisioners.Kind {
		k = karpenter.Provisioners
	}
	owner = &metav1.PartialObjectMetadata{}
	owner.SetGroupVersionKind(k.GroupVersionKind)
	err = p.live.Get(ctx, client.ObjectKey{Name: ref.Name}, owner)
	if err == nil {
		return owner, true, nil
	}
	if apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
		if err = p.live.List(ctx, &list, client.Limit(1)); err == nil {
			return nil, false, nil
		}
	}
	// Not wrapped: a failure to read must not look as if the claim were deleted.
	return nil, false, fmt.Errorf("reading whether %s %s exists: %v", k.Kind, ref.Name, err)
}

func (p *poolStatus) endWithPool(ctx context.Context, nc *karpv1.NodeClaim) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// Delete only this version: its owner reference may have been removed a moment ago.
	only := client.Preconditions{UID: &nc.UID, ResourceVersion: &nc.ResourceVersion}
	gone := &karpv1.NodeClaim{}
	gone.Name = nc.Name
	if err := p.live.Delete(ctx, gone, only); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s, whose pool was deleted: %w", nc.Name, err)
	}
	ref := nc.OwnerReferences[0]
	klog.FromContext(ctx).V(2).Info("Deleted a NodeClaim whose pool was deleted", "nodeClaim", nc.Name, "kind", ref.Kind, "pool", ref.Name)
	p.recorder.Eventf(nc, nil, corev1.EventTypeNormal, reasonPoolDeleted, "Delete", "%s %s was deleted, so its nodes are terminated", ref.Kind, ref.Name)
	return nil
}
