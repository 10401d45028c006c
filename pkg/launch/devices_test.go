package launch

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// deviceState has one device class and one claim. counting is called when devices are counted.
type deviceState struct{ counting func() }

func (s *deviceState) Claim(string, string) (*resourcev1.ResourceClaim, error) {
	c := &resourcev1.ResourceClaim{}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu",
		AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
	return c, nil
}
func (s *deviceState) Allocated() (*structured.AllocatedState, error) { return devices.Nothing(), nil }
func (s *deviceState) List() ([]*resourcev1.DeviceClass, error) {
	s.counting()
	return []*resourcev1.DeviceClass{{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}}, nil
}
func (s *deviceState) Get(name string) (*resourcev1.DeviceClass, error) {
	if name != "gpu" {
		return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
	}
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, nil
}

func devicesOfNode(node string, names ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node + "-gpu", ResourceVersion: fmt.Sprint(len(names))}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1}}}
	for _, name := range names {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name})
	}
	return s
}

// withDeviceState builds a world in which a pod asks for a device, and a managed Node.
func withDeviceState(t *testing.T) (w *world, state *deviceState, shape string, node *corev1.Node) {
	w = newWorld(t)
	w.build()
	state = &deviceState{func() {}}
	of := devices.New(state, devices.NewAllocator(structured.Features{}, false, state), clock.RealClock{})
	w.parts.Nodes.states.devices = of
	pod := w.pod(0)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("gpu")}}
	shape, err := of.Of(pod, false)
	if err != nil {
		t.Fatal(err)
	}
	return w, state, shape, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{labelPool: "pool", labelRegistered: "true", labelInitialized: "true"}}}
}

func (w *world) usable(node, shape string) bool {
	w.parts.Nodes.states.mu.Lock()
	defer w.parts.Nodes.states.mu.Unlock()
	return slices.Contains(w.parts.Nodes.states.seen[node].Drivers, shape)
}

// Counting devices may take long. Meanwhile the scheduler hears of its other nodes.
func TestNodesDoNotWaitWhileDevicesAreCounted(t *testing.T) {
	w, state, shape, node := withDeviceState(t)
	w.parts.Nodes.NodeCached(node)
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	state.counting = func() { once.Do(func() { close(begun); <-end }) }
	var counted sync.WaitGroup
	counted.Go(func() { w.parts.Nodes.ResourceSlices().OnAdd(devicesOfNode("node", "a"), false) })
	<-begun
	done := make(chan struct{})
	go func() {
		w.parts.Nodes.NodeCached(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		w.parts.Nodes.NodeUncached(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("the events of another node wait")
	}
	close(end)
	counted.Wait()
	if !w.usable("node", shape) {
		t.Error("the ledger doesn't know of the devices")
	}
}

// A driver publishes while the devices of its node are counted for another reason. The older number must not stay.
func TestDevicesThatChangeWhileTheyAreCounted(t *testing.T) {
	w, state, shape, node := withDeviceState(t)
	w.parts.Nodes.NodeCached(node)
	handler := w.parts.Nodes.ResourceSlices()
	handler.OnAdd(devicesOfNode("node"), false)
	if w.usable("node", shape) {
		t.Fatal("there are none")
	}
	state.counting = func() {
		state.counting = func() {}
		handler.OnUpdate(nil, devicesOfNode("node", "a"))
	}
	w.parts.Nodes.NodeCached(node.DeepCopy())
	if !w.usable("node", shape) {
		t.Error("the ledger has an older status")
	}
	w.parts.Nodes.NodeUncached(node)
	w.parts.Nodes.DevicesAsked()
	if len(w.parts.Nodes.states.usable) > 0 {
		t.Error("a node that is gone is remembered")
	}
}
