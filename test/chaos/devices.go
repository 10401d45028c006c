package chaos

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// deviceDriver is the driver of the devices of dynamic resource allocation.
const deviceDriver = "gpu.example.com"

// Devices adds the device class gpu and its driver, which publishes so many devices for each node that is Ready, when publishes returns true.
// That is called with how long the node has been Ready.
func (s *Stage) Devices(count int, publishes func(ready time.Duration) bool) {
	s.Create(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "` + deviceDriver + `"`}}}}})
	s.Each(func() {
		nodes, err := s.factory.Core().V1().Nodes().Lister().List(labels.Everything())
		if err != nil {
			return
		}
		for _, n := range nodes {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && publishes(time.Since(c.LastTransitionTime.Time)) {
					s.publishDevices(n, count)
				}
			}
		}
	})
}

func (s *Stage) publishDevices(n *corev1.Node, count int) {
	published := s.kube.ResourceV1().ResourceSlices()
	name := n.Name + "-gpus"
	if _, err := published.Get(s.ctx, name, metav1.GetOptions{}); err == nil {
		return
	}
	slice := &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}}},
		Spec:       resourcev1.ResourceSliceSpec{Driver: deviceDriver, NodeName: &n.Name, Pool: resourcev1.ResourcePool{Name: n.Name, ResourceSliceCount: 1}},
	}
	for i := range count {
		slice.Spec.Devices = append(slice.Spec.Devices, resourcev1.Device{Name: fmt.Sprintf("gpu-%d", i)})
	}
	_, _ = published.Create(s.ctx, slice, metav1.CreateOptions{}) // tried again at the next step
}

// DeviceClaim returns a ResourceClaim for one device of the class gpu.
func DeviceClaim(name string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}}}}
}

// Claiming gives pods a ResourceClaim.
func Claiming(claim string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		t.Spec.ResourceClaims = append(t.Spec.ResourceClaims, corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: &claim})
	}
}
