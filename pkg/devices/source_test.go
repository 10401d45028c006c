package devices

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// cluster is the State of a test.
type cluster struct {
	claims    map[string]*resourcev1.ResourceClaim
	classes   []*resourcev1.DeviceClass
	allocated *structured.AllocatedState
}

func (c *cluster) Claim(_, name string) (*resourcev1.ResourceClaim, error) {
	if rc := c.claims[name]; rc != nil {
		return rc, nil
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
}
func (c *cluster) Allocated() (*structured.AllocatedState, error) { return c.allocated, nil }
func (c *cluster) List() ([]*resourcev1.DeviceClass, error)       { return c.classes, nil }
func (c *cluster) Get(name string) (*resourcev1.DeviceClass, error) {
	for _, dc := range c.classes {
		if dc.Name == name {
			return dc, nil
		}
	}
	return nil, apierrors.NewNotFound(resourcev1.Resource("deviceclasses"), name)
}

func newSource() (*Source, *cluster) {
	gpu := &resourcev1.DeviceClass{Spec: resourcev1.DeviceClassSpec{Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}}}
	gpu.Name = "gpu"
	c := &cluster{claims: map[string]*resourcev1.ResourceClaim{}, classes: []*resourcev1.DeviceClass{gpu}, allocated: Nothing()}
	return New(c, NewAllocator(structured.Features{}, false, c), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))), c
}

// claims gives the cluster a claim for a number of devices, which a pod uses.
func (c *cluster) pod(name string, count int64, selectors ...string) *corev1.Pod {
	rc := &resourcev1.ResourceClaim{}
	rc.Name = name
	exactly := &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: count}
	for _, expression := range selectors {
		exactly.Selectors = append(exactly.Selectors, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: expression}})
	}
	rc.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: exactly}}
	c.claims[name] = rc
	pod := &corev1.Pod{}
	pod.Name, pod.UID = name, types.UID(name)
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
	pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &rc.Name}}
	return pod
}

// publish returns what a driver publishes for a node: a slice of a pool of so many.
func publish(node string, slice, of int64, devices ...string) *resourcev1.ResourceSlice {
	s := &resourcev1.ResourceSlice{}
	s.Name, s.ResourceVersion = fmt.Sprintf("%s-%d", node, slice), fmt.Sprint(devices)
	s.Spec = resourcev1.ResourceSliceSpec{Driver: "gpu.example.com", NodeName: &node, Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: of, Generation: 1}}
	for _, d := range devices {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: d, Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": {StringValue: ptr.To(node + d)}, "model": {StringValue: ptr.To("A10G")}}})
	}
	return s
}

func nodeClaim(node, instanceType, image string, at int64) *capacity.Claim {
	return &capacity.Claim{Name: "claim-" + node, NodeName: node, NodeClass: "gpus", InstanceType: instanceType, ImageID: image, CreatedAt: time.Unix(at, 0)}
}

func key(t *testing.T, s *Source, pod *corev1.Pod) string {
	t.Helper()
	out, err := s.Of(pod, false)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDeclaredDevicesAreCounted(t *testing.T) {
	s, c := newSource()
	one, two := key(t, s, c.pod("one", 1)), key(t, s, c.pod("two", 2))
	huge := key(t, s, c.pod("huge", 1, `device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0`))
	if _, err := s.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: twoKinds}, false); err != nil {
		t.Fatal(err)
	}
	for instanceType, want := range map[string]map[string]int64{
		"g5.xlarge": {one: 2, two: 1, huge: 0}, "g6.large": {one: 3, two: 1, huge: 0}, "m5.large": {one: 0, two: 0, huge: 0},
	} {
		if got := s.Counts(s.Template("gpus", instanceType, "ami"), nil); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", instanceType, got, want)
		}
	}
	if s.Template("others", "g5.xlarge", "ami") != "" {
		t.Error("a class has the devices that another one declares")
	}
}

func TestAnAnnotationThatCannotBeRead(t *testing.T) {
	s, _ := newSource()
	changed, err := s.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: "- {}"}, false)
	if !changed || err == nil || err.Error() != "annotation dovetail.sh/devices of node class gpus entry 0: instanceTypes: must name 1 to 256 instance types or families" {
		t.Errorf("%t, %v", changed, err)
	}
	if changed, _ = s.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: "- {}"}, false); changed {
		t.Error("the same annotation is a change")
	}
	if s.Problem("gpus") == nil || s.Template("gpus", "g5.xlarge", "") != "" {
		t.Error("the class declares something")
	}
	if changed, err = s.SetNodeClass("gpus", nil, true); !changed || err != nil {
		t.Errorf("gone: %t, %v", changed, err)
	}
}

// A node teaches what its kind has once all its slices are there, the youngest one that shows anything last, and what it has been taught outlives
// the node. It replaces what is declared for the same driver.
func TestDevicesAreLearned(t *testing.T) {
	s, c := newSource()
	one := key(t, s, c.pod("one", 1))
	count := func(image string) int64 { return s.Counts(s.Template("gpus", "g5.xlarge", image), nil)[one] }
	expect := func(what string, want int64, learned, wantLearned bool) {
		t.Helper()
		if got := count("ami-1"); got != want || learned != wantLearned {
			t.Errorf("%s: %d devices, learned %t; want %d, %t", what, got, learned, want, wantLearned)
		}
	}
	slice := func(s2 *resourcev1.ResourceSlice, gone bool) bool {
		_, learned := s.SliceChanged(s2, gone)
		return learned
	}
	expect("nothing is known", 0, slice(publish("stranger", 0, 1, "a"), false), false)
	expect("a claim that has shown nothing", 0, s.ClaimChanged(nodeClaim("n1", "g5.xlarge", "ami-1", 10), false), false)
	expect("half of the slices", 0, slice(publish("n1", 0, 2, "a", "b"), false), false)
	expect("all of them", 3, slice(publish("n1", 1, 2, "c"), false), true)
	if got := count("ami-2"); got != 3 {
		t.Errorf("with another image: %d devices, want those of the image that is known", got)
	}
	s.ClaimChanged(nodeClaim("n2", "g5.xlarge", "ami-1", 20), false)
	expect("a younger node shows fewer", 1, slice(publish("n2", 0, 1, "a"), false), true)
	expect("the older one changes", 1, slice(publish("n1", 1, 2, "c", "d"), false), false)
	expect("nodes are gone", 1, slice(publish("n2", 0, 1, "a"), true) || s.ClaimChanged(nodeClaim("n2", "g5.xlarge", "ami-1", 20), true), false)
	if _, err := s.SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: twoKinds}, false); err != nil {
		t.Fatal(err)
	}
	expect("declared otherwise", 1, false, false)
	if got := s.Supposed(s.Template("gpus", "g5.xlarge", "ami-1"), "new"); len(got) != 2 || got[0].Spec.Driver != "gpu.example.com" || got[1].Spec.Driver != "nic.example.com" ||
		*got[0].Spec.NodeName != "new" || got[0].Spec.Pool.Name != "new" || got[0].Spec.Devices[0].Attributes["uuid"].StringValue != nil {
		t.Errorf("supposed: %v", got)
	}
}

func TestFreeDevices(t *testing.T) {
	s, c := newSource()
	if s.Free() != nil {
		t.Error("devices are counted although no pod asks for any")
	}
	one := key(t, s, c.pod("one", 1))
	s.SliceChanged(publish("n1", 0, 1, "a", "b", "c"), false)
	node := &corev1.Node{}
	node.Name = "n1"
	fit := func(want int64) {
		t.Helper()
		for range 2 { // the second time from the cache
			if got := s.Free().On(node)[one]; got != want {
				t.Errorf("%d pods fit, want %d", got, want)
			}
		}
	}
	fit(3)
	c.allocated.AllocatedDevices.Insert(structured.MakeDeviceID("gpu.example.com", "n1", "b"))
	fit(2)
	if got := s.Published(node); len(got) != 1 || got[0] != one {
		t.Errorf("published: %v", got)
	}
	node.Name = "n2"
	if got := s.Published(node); len(got) != 0 {
		t.Errorf("published for a node without devices: %v", got)
	}
}

func TestClaimsThatNeedNothing(t *testing.T) {
	s, c := newSource()
	pod := c.pod("one", 1)
	c.claims["one"].Status.Allocation = &resourcev1.AllocationResult{}
	if got := key(t, s, pod); got != "" {
		t.Errorf("allocated: %q", got)
	}
	if got, err := s.Of(pod, true); got == "" || err != nil {
		t.Errorf("the pod's successor gets a new claim: %q, %v", got, err)
	}
	pod.Spec.ResourceClaims[0] = corev1.PodResourceClaim{Name: "gpu", ResourceClaimName: ptr.To("one")}
	if got, err := s.Of(pod, true); got != "" || err != nil {
		t.Errorf("the successor uses the same claim: %q, %v", got, err)
	}
	bare := c.pod("bare", 1)
	c.claims["bare"].Spec.Devices.Requests = nil
	if got := key(t, s, bare); got != "" {
		t.Errorf("a claim without requests: %q", got)
	}
	pod.Spec.ResourceClaims[0].ResourceClaimName = ptr.To("none")
	if _, err := s.Of(pod, false); err == nil {
		t.Error("a claim that doesn't exist is no problem")
	}
	var off *Source
	if got, err := off.Of(pod, false); got != "" || err != nil || off.Template("a", "b", "c") != "" || off.Counts("", nil) != nil || off.Free().On(nil) != nil {
		t.Error("with the setting off something is known")
	}
}

func TestSourceIsSafeForConcurrentUse(t *testing.T) {
	s, c := newSource()
	pods := []*corev1.Pod{c.pod("one", 1), c.pod("two", 2)}
	s.OnShape(func() {})
	node := &corev1.Node{}
	node.Name = "n1"
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 20 {
				_, _ = s.Of(pods[i%2], false)
				s.ClaimChanged(nodeClaim("n1", "g5.xlarge", "ami", int64(i)), i%5 == 0)
				s.SliceChanged(publish("n1", 0, 1, "a", fmt.Sprint("b", i)), i%7 == 0)
				s.Counts(s.Template("gpus", "g5.xlarge", "ami"), nil)
				s.Free().On(node)
				s.Published(node)
				s.Claims("one")
				s.Supposed(s.OfClaim(nodeClaim("n1", "g5.xlarge", "ami", 1)), "new")
			}
		})
	}
	wg.Wait()
}
