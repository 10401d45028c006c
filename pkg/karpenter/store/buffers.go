package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// newBufferInformer returns the informer of CapacityBuffers, which isn't run yet. If the permission to read them is missing, it logs that.
func (p *poolStatus) newBufferInformer() (*informer, error) {
	changed := func(_, _ *autoscalingv1beta1.CapacityBuffer) {
		if p.onBuffer != nil {
			p.onBuffer()
		}
	}
	buffers, err := newInformer(karpenter.CapacityBuffers, p.leaves, p.live, observe.Changes(changed), p.clock)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	return buffers, buffers.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
		once.Do(func() {
			klog.FromContext(ctx).Info("CapacityBuffers can't be read, will retry. If there are any, they have no effect until then", "reason", err)
		})
	})
}

// watchBuffers watches CapacityBuffers while this process leads, from when their definition is installed. The store works without them and
// doesn't wait for them.
func (p *poolStatus) watchBuffers(ctx context.Context) {
	p.buffers.Store(p.bufferInformer)
	p.bufferInformer.RunWithContext(ctx)
}

// OnBuffer registers f to be called when a CapacityBuffer was added, changed or deleted. Call it before RunStatus.
func (s *Store) OnBuffer(f func()) { s.status.onBuffer = f }

// Buffers returns all CapacityBuffers, sorted by namespace and name, from memory; they must not be changed. known is false until the API server has
// listed them; it is true with an empty result if it can't, because their definition isn't installed or the permission to read them is missing.
func (s *Store) Buffers() (all []*autoscalingv1beta1.CapacityBuffer, known bool) {
	i := s.status.buffers.Load()
	if i == nil {
		return nil, false
	}
	if !i.HasSynced() {
		absent, err := i.state()
		return nil, absent || apierrors.IsForbidden(err)
	}
	for _, o := range i.GetStore().List() {
		all = append(all, o.(*autoscalingv1beta1.CapacityBuffer))
	}
	slices.SortFunc(all, func(a, b *autoscalingv1beta1.CapacityBuffer) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, true
}

// SaveBufferStatus writes the status of a CapacityBuffer, and fails if base is not its current version.
func (s *Store) SaveBufferStatus(ctx context.Context, base, changed *autoscalingv1beta1.CapacityBuffer) error {
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(changed)
	if err != nil {
		return err
	}
	// The answer is decoded without a type, because a malformed object doesn't fit its type.
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(karpenter.CapacityBuffers.GroupVersionKind)
	answer.SetNamespace(base.Namespace)
	answer.SetName(base.Name)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.live.Status().Patch(ctx, answer, client.RawPatch(patch.Type(), data)); err != nil {
		return fmt.Errorf("writing the status of CapacityBuffer %s: %w", klog.KObj(base), err)
	}
	return nil
}
