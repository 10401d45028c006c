package store

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

var bufferVersion = schema.GroupVersion{Group: "autoscaling.x-k8s.io", Version: "v1beta1"}

const reasonBufferIgnored = "CapacityBufferIgnored"

// capacityBuffers are read only to report that they have no effect. The store works without them and doesn't wait for them.
var capacityBuffers = karpenter.CustomKind{GroupVersionKind: bufferVersion.WithKind("CapacityBuffer"), Resource: "capacitybuffers",
	New: func() client.Object { return &metav1.PartialObjectMetadata{} }, NewList: func() client.ObjectList { return &metav1.PartialObjectMetadataList{} }}

// watchBuffers reports on every CapacityBuffer, once while this process leads, that it has no effect here. If the definition isn't
// installed there is nothing to report on; if the permission to read CapacityBuffers is missing, that is logged.
func (p *poolStatus) watchBuffers(ctx context.Context) {
	buffers, err := newInformer(capacityBuffers, schema.GroupKind{}, p.live, observe.Changes(func(before, after *metav1.PartialObjectMetadata) {
		if before == nil {
			p.changed(capacityBuffers, after.Namespace+"/"+after.Name)
		}
	}), p.clock)
	if err == nil {
		var once sync.Once
		err = buffers.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			once.Do(func() {
				klog.FromContext(ctx).Info("CapacityBuffers can't be read, will retry. If there are any, they have no effect", "reason", err)
			})
		})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "CapacityBuffers are not watched. If there are any, they have no effect")
		return
	}
	p.buffers.Store(buffers)
	buffers.RunWithContext(ctx)
}

// tellBuffer records an event on a CapacityBuffer that it has no effect. It doesn't write the buffer's status, which belongs to the
// controller that implements buffers: in a cluster with another autoscaler the buffer may have an effect there.
func (p *poolStatus) tellBuffer(key string) {
	if o, ok, _ := p.buffers.Load().GetStore().GetByKey(key); ok {
		p.recorder.Eventf(o.(*metav1.PartialObjectMetadata), nil, corev1.EventTypeWarning, reasonBufferIgnored, "Provision",
			"Dovetail launches no nodes for CapacityBuffers and keeps none for them. A Deployment of pause pods with a low priority has the same effect")
	}
}
