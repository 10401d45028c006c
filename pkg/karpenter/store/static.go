package store

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// StaticClaims asks the API server, bypassing every cache, how many nodes a static pool wants, whether the pool is there, and which claims
// it has, by name (true: being deleted). Another Dovetail may have launched claims for the pool before. These stay, so each of them reduces replicas
// by one and isn't among claims. For a pool that is gone or being deleted, replicas is 0 and there is false.
func (s *Store) StaticClaims(ctx context.Context, pool string) (replicas int64, there bool, claims map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if replicas, there, err = s.wanted(ctx, pool); err != nil || !there {
		return 0, false, nil, err
	}
	// Only the names are needed, and one claim that can't be decoded must not fail the others.
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(karpenter.NodeClaims.GroupVersion().WithKind(karpenter.NodeClaims.Kind + "List"))
	if err := s.live.List(ctx, &list, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}); err != nil {
		return 0, false, nil, fmt.Errorf("listing the claims of %s: %w", pool, err)
	}
	claims = make(map[string]bool, len(list.Items))
	for i := range list.Items {
		if list.Items[i].Labels[objects.LabelManagedBy] != s.nodeClass.ManagedBy {
			if list.Items[i].DeletionTimestamp.IsZero() {
				replicas = max(0, replicas-1)
			}
			continue
		}
		claims[list.Items[i].Name] = !list.Items[i].DeletionTimestamp.IsZero()
	}
	return replicas, true, claims, nil
}

// wanted returns how many nodes a static pool wants. A pool from a profile's arguments has no object to read.
func (s *Store) wanted(ctx context.Context, pool string) (replicas int64, there bool, err error) {
	if karpenter.Derived(pool) {
		np := s.poolObject(pool)
		if np == nil || np.Spec.Replicas == nil {
			return 0, false, nil
		}
		return *np.Spec.Replicas, true, nil
	}
	np := &unstructured.Unstructured{}
	np.SetGroupVersionKind(karpenter.NodePools.GroupVersionKind)
	if err := s.live.Get(ctx, client.ObjectKey{Name: pool}, np); apierrors.IsNotFound(err) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("reading NodePool %s: %w", pool, err)
	}
	replicas, static, err := unstructured.NestedInt64(np.Object, "spec", "replicas")
	if err != nil {
		return 0, false, fmt.Errorf("NodePool %s: %w", pool, err)
	}
	return replicas, static && np.GetDeletionTimestamp() == nil, nil
}

// TellPool records an event on a NodePool.
func (s *Store) TellPool(pool, eventType, reason, note string) {
	if np := s.poolObject(pool); np != nil {
		s.recorder.Eventf(np, nil, eventType, reason, "Launch", "%s", shorten(note))
	}
}

// TellClass records an event on a node class.
func (s *Store) TellClass(class, eventType, reason, note string) {
	if nc := s.class(class); nc != nil {
		s.recorder.Eventf(nc, nil, eventType, reason, "Launch", "%s", shorten(note))
	}
}
