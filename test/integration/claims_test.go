package integration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// A pod claims a device that no instance type offers, as no driver has ever announced one. It gets an event that states this, and
// nothing is launched for it, while other pods get their node.
func TestDeviceClaimsThatNoMachineCanServe(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.create(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu.example.com"}}, &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"},
		Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{
			Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}}}},
	})
	e.pods("claiming", 1, "500m", "256Mi", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To("one")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	})
	if why := e.eventOf("claiming-0", "FailedProvisioning"); !strings.Contains(why, "DynamicResources") {
		t.Errorf("the pod is told %q, which doesn't name what refuses it", why)
	}
	e.pods("plain", 1, "500m", "256Mi")
	e.bound("plain", 1)
	e.settled(1)
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches, want the one for the pod that claims nothing", n)
	}
}
