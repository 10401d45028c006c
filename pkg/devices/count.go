package devices

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/klog/v2"
)

// Allocator counts how many pods get their devices on a node, with the allocator of the DynamicResources plugin.
type Allocator struct {
	features structured.Features
	classes  structured.DeviceClassLister
	cel      *cel.Cache
	time     time.Duration // that a count may take
}

// NewAllocator returns an Allocator. features are those of the scheduler's plugin.
func NewAllocator(features structured.Features, listType bool, classes structured.DeviceClassLister) *Allocator {
	return &Allocator{features: features, classes: classes, time: countTime,
		cel: cel.NewCache(100, cel.Features{EnableConsumableCapacity: features.ConsumableCapacity, EnableListTypeAttributes: listType})}
}

// Limits of a count: pods that fit on one node, and the time that it may take.
const (
	maxCount  = 128
	countTime = time.Second
)

// Nothing returns the state in which no device is allocated.
func Nothing() *structured.AllocatedState {
	return &structured.AllocatedState{AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection()}
}

// count returns how many pods of the shape get their devices on the node, up to most. The state is changed. exact is false if the time was over, or
// something went wrong: there may be devices for more pods than could be counted, so the number must not be remembered.
func (a *Allocator) count(node *corev1.Node, published []*resourcev1.ResourceSlice, taken *structured.AllocatedState, shape *Shape, most int64) (n int64, exact bool) {
	if len(published) == 0 {
		return 0, true
	}
	ctx, cancel := context.WithTimeout(klog.NewContext(context.Background(), klog.Background()), a.time)
	defer cancel()
	claims := make([]*resourcev1.ResourceClaim, 0, len(shape.Specs))
	for i := range shape.Specs {
		claims = append(claims, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: shape.Key, UID: types.UID(shape.Key + shape.names[i])}, Spec: shape.Specs[i]})
	}
	for ; n < most; n++ {
		allocator, err := structured.NewAllocator(ctx, a.features, *taken, a.classes, published, a.cel)
		if err != nil {
			return n, false
		}
		results, err := allocator.Allocate(ctx, node, claims)
		failed := err != nil && !errors.Is(err, structured.ErrFailedAllocationOnNode)
		if failed {
			klog.FromContext(ctx).V(4).Info("The devices of a pod could not be counted", "devices", shape.Key, "node", node.Name, "err", err)
		}
		if err != nil || len(results) != len(claims) {
			return n, !failed && ctx.Err() == nil
		}
		before := len(taken.AllocatedDevices) + len(taken.AllocatedSharedDeviceIDs)
		for i := range results {
			Take(taken, &results[i])
		}
		if len(taken.AllocatedDevices)+len(taken.AllocatedSharedDeviceIDs) == before {
			return most, true // the pod takes nothing from others, as with admin access
		}
	}
	return most, true
}

// Take adds the devices of an allocation to those that are allocated.
func Take(state *structured.AllocatedState, allocation *resourcev1.AllocationResult) {
	for i := range allocation.Devices.Results {
		r := &allocation.Devices.Results[i]
		if r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		id := structured.MakeDeviceID(r.Driver, r.Pool, r.Device)
		if r.ShareID == nil {
			state.AllocatedDevices.Insert(id)
			continue
		}
		state.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, r.ShareID))
		state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, r.ConsumedCapacity))
	}
}
