package devices

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// What a claim tells the driver makes no other shape: pods may have a configuration each.
func TestConfigurationMakesNoShape(t *testing.T) {
	s, c := newSource()
	want := key(t, s, c.pod("plain", 1))
	for i := range maxShapes + 1 {
		pod := c.pod(fmt.Sprint("p", i), 1)
		c.claims[pod.Name].Spec.Devices.Config = []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: "gpu.example.com", Parameters: runtime.RawExtension{Raw: fmt.Appendf(nil, `{"id": %d}`, i)}}}}}
		if got := key(t, s, pod); got != want {
			t.Fatalf("pod %d is of shape %s, want %s", i, got, want)
		}
		if len(c.claims[pod.Name].Spec.Devices.Config) != 1 {
			t.Fatal("the informer's claim was changed")
		}
	}
}

// When there are too many shapes, one that no pod waits with any more makes way, the least recently used one first.
func TestAnOldShapeMakesWay(t *testing.T) {
	s, c := newSource()
	s.SetPatience(10 * time.Minute)
	now := s.clock.(*clocktesting.FakePassiveClock)
	pass := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }
	pods := make([]*corev1.Pod, 0, maxShapes+2)
	for i := range maxShapes + 2 {
		pods = append(pods, c.pod(fmt.Sprint("p", i), int64(i)))
	}
	for _, pod := range pods[:maxShapes] {
		key(t, s, pod)
		pass(time.Second)
	}
	if _, err := s.Of(pods[maxShapes], false); err == nil {
		t.Fatal("pods may still wait with each of the shapes")
	}
	pass(20 * time.Minute)
	kept := key(t, s, pods[0])
	dropped := key(t, s, pods[maxShapes])
	if s.shapes[kept] == nil || s.shapes[dropped] == nil || len(s.shapes) != maxShapes {
		t.Errorf("%d shapes; the used one is known: %t, the new one: %t", len(s.shapes), s.shapes[kept] != nil, s.shapes[dropped] != nil)
	}
	pass(shapeLife + time.Second)
	s.Tend()
	if !s.Idle() {
		t.Errorf("%d shapes are known though no pod has used them for a day", len(s.shapes))
	}
}

// However many pods are asked about, those of the last plans are known.
func TestPodsAreRememberedWithTheirShape(t *testing.T) {
	s, c := newSource()
	pod := c.pod("one", 1)
	key(t, s, pod)
	for i := range 3 * maxPods {
		s.byPod.put(types.UID(fmt.Sprint(i)), &Shape{})
		if i%maxPods == maxPods/2 && s.Claims(pod.UID) == nil {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if n := len(s.byPod.recent) + len(s.byPod.older); n > 2*maxPods {
		t.Errorf("%d pods are remembered", n)
	}
}
