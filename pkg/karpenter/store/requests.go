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

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// watchRequests watches ProvisioningRequests while this process leads, from when their definition is installed. The store works without them and
// doesn't wait for them; if the permission to read them is missing, that is logged.
func (p *poolStatus) watchRequests(ctx context.Context) {
	changed := func(_, _ *provisioningv1.ProvisioningRequest) {
		if p.onRequest != nil {
			p.onRequest()
		}
	}
	requests, err := newInformer(karpenter.ProvisioningRequests, p.leaves, p.live, observe.Changes(changed), p.clock)
	if err == nil {
		var once sync.Once
		err = requests.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			once.Do(func() {
				klog.FromContext(ctx).Info("ProvisioningRequests can't be read, will retry. If there are any, they have no effect until then", "reason", err)
			})
		})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "ProvisioningRequests are not watched. If there are any, they have no effect")
		return
	}
	p.requests.Store(requests)
	requests.RunWithContext(ctx)
}

// OnRequest registers f to be called when a ProvisioningRequest was added, changed or deleted. Call it before RunStatus.
func (s *Store) OnRequest(f func()) { s.status.onRequest = f }

// Requests returns all ProvisioningRequests, the oldest first, from memory; they must not be changed. known is false until the API server has listed
// them; it is true if it can't, because their definition isn't installed or the permission to read them is missing.
func (s *Store) Requests() (all []*provisioningv1.ProvisioningRequest, known bool) {
	i := s.status.requests.Load()
	if i == nil {
		return nil, false
	}
	if !i.HasSynced() {
		absent, err := i.state()
		return nil, absent || apierrors.IsForbidden(err)
	}
	for _, o := range i.GetStore().List() {
		all = append(all, o.(*provisioningv1.ProvisioningRequest))
	}
	slices.SortFunc(all, func(a, b *provisioningv1.ProvisioningRequest) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return all, true
}

// SaveRequestStatus writes the status of a ProvisioningRequest, and fails if base is not its current version.
func (s *Store) SaveRequestStatus(ctx context.Context, base, changed *provisioningv1.ProvisioningRequest) error {
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(changed)
	if err != nil {
		return err
	}
	// The answer is decoded without a type, because a malformed object doesn't fit its type.
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(karpenter.ProvisioningRequests.GroupVersionKind)
	answer.SetNamespace(base.Namespace)
	answer.SetName(base.Name)
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.live.Status().Patch(ctx, answer, client.RawPatch(patch.Type(), data)); err != nil {
		return fmt.Errorf("writing the status of ProvisioningRequest %s: %w", klog.KObj(base), err)
	}
	return nil
}
