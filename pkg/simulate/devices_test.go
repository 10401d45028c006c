package simulate

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// draState reads claims and classes as cmd/scheduler does.
type draState struct{ manager fwk.SharedDRAManager }

func (s draState) Claim(namespace, name string) (*resourcev1.ResourceClaim, error) {
	return s.manager.ResourceClaims().Get(namespace, name)
}
func (s draState) Allocated() (*structured.AllocatedState, error) {
	return s.manager.ResourceClaims().GatherAllocatedState()
}
func (s draState) List() ([]*resourcev1.DeviceClass, error) { return s.manager.DeviceClasses().List() }
func (s draState) Get(name string) (*resourcev1.DeviceClass, error) {
	return s.manager.DeviceClasses().Get(name)
}

// withDevices adds a Source for which node class "gpus" declares two devices on g5.xlarge.
func withDevices(t *testing.T, of **devices.Source) clusterOption {
	return func(cfg *clusterConfig) {
		cfg.devices = func(manager fwk.SharedDRAManager) *devices.Source {
			state := draState{manager}
			*of = devices.New(state, devices.NewAllocator(structured.Features{}, false, state), clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
			if _, err := (*of).SetNodeClass("gpus", map[string]string{objects.AnnotationDevices: "- {instanceTypes: [g5.xlarge], driver: gpu.example.com, count: 2}"}, false); err != nil {
				t.Fatal(err)
			}
			return *of
		}
	}
}

func gpuClass() *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{
		Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: `device.driver == "gpu.example.com"`}}}}}
}

func gpuClaim(name, pod string) *resourcev1.ResourceClaim {
	rc := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("claim-" + name)}}
	rc.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu",
		AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1}}}
	if pod != "" {
		rc.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod, UID: types.UID(pod), Controller: ptr.To(true)}}
	}
	return rc
}

// gpuPod returns a pod with a claim of its own, made from a template.
func gpuPod(name string) *corev1.Pod {
	p := pod(name, "train").Obj()
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu")}}
	p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("of-" + name)}}
	return p
}

func sharing(name, claim string) *corev1.Pod {
	p := pod(name, "share").Obj()
	p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: ptr.To(claim)}}
	return p
}

// TestDevices: the DynamicResources plugin is asked about the devices that hypothetical nodes will have, and every placed pod takes its own.
func TestDevices(t *testing.T) {
	var of *devices.Source
	objects := []runtime.Object{gpuClass(), gpuClaim("shared", ""), node("real", "z1").Obj()}
	for i := range 5 {
		objects = append(objects, gpuClaim(fmt.Sprintf("of-p%d", i), fmt.Sprintf("p%d", i)))
	}
	c := newCluster(t, objects, withDevices(t, &of))
	key := of.Template("gpus", "g5.xlarge", "")
	planned := func(name string) capacity.TrialNode {
		return capacity.TrialNode{Node: node(name, "z1").Obj(), Devices: key}
	}
	steps := func(on string, pods ...int) (out []capacity.Step) {
		for _, i := range pods {
			p := gpuPod(fmt.Sprintf("p%d", i))
			if _, err := of.Of(p, false); err != nil {
				t.Fatal(err)
			}
			out = append(out, step(p, on))
		}
		return out
	}
	same := func(number int, on string) (out []capacity.Step) { // pods that don't exist yet, of the class of p0
		for range number {
			out = append(out, steps(on, 0)...)
		}
		return out
	}
	named := func(number int, on string) (out []capacity.Step) {
		for range number {
			p := sharing("s1", "shared")
			if _, err := of.Of(p, false); err != nil {
				t.Fatal(err)
			}
			out = append(out, step(p, on))
		}
		return out
	}
	successor := steps("a", 0)
	next := *successor[0].Pod
	next.Status = corev1.PodStatus{}
	successor[0].Pod = &next
	own := func(steps []capacity.Step) []capacity.Step {
		for i := range steps {
			steps[i].Own = true
		}
		return steps
	}
	unknown := gpuPod("unknown")
	unknown.Status = corev1.PodStatus{}
	const none = "DynamicResources: cannot allocate all claims"
	for _, tc := range []struct {
		name  string
		trial capacity.Trial
		want  []string
	}{
		{"two fit", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: steps("a", 0, 1)}, nil},
		{"a third doesn't", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: steps("a", 0, 1, 2)}, []string{"2 " + none}},
		{"nor in any order", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: steps("a", 0, 1, 2), AnyOrder: true}, []string{"2 " + none}},
		{"alone each of them does", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: steps("a", 0, 1, 2), Alone: true}, nil},
		{"nodes have their own", capacity.Trial{Nodes: []capacity.TrialNode{planned("a"), planned("b")}, Steps: append(steps("a", 0, 1), steps("b", 2, 3)...)}, nil},
		{"a node of which no devices are known", capacity.Trial{Nodes: []capacity.TrialNode{{Node: node("a", "z1").Obj()}}, Steps: steps("a", 0)}, []string{"0 " + none}},
		{"a real node without devices", capacity.Trial{Steps: steps("real", 0)}, []string{"0 " + none}},
		{"a real node that will have them", capacity.Trial{Nodes: []capacity.TrialNode{planned("real")}, Steps: steps("real", 0)}, nil},
		{"reserved for an earlier plan", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Promised: same(1, "a"), Steps: steps("a", 0, 1)}, []string{"1 " + none}},
		{"pods that don't exist yet", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: same(3, "a")}, []string{"2 " + none}},
		{"the pod that will be created in the place of another", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: append(successor, steps("a", 1, 2)...)}, []string{"2 " + none}},
		{"pods that share a claim", capacity.Trial{Nodes: []capacity.TrialNode{planned("a"), planned("b")},
			Steps: []capacity.Step{step(sharing("s1", "shared"), "a"), step(sharing("s2", "shared"), "a"), step(sharing("s3", "shared"), "b")}},
			[]string{"2 DynamicResources: resourceclaim not available on the node"}},
		{"earlier plans for pods of a class whose claims have names", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Promised: named(2, "a"), Steps: steps("a", 0)},
			[]string{"0 " + none}},
		{"an earlier plan for another pod of the class, whose claim has another name", capacity.Trial{Nodes: []capacity.TrialNode{planned("a"), planned("b")}, Promised: named(1, "a"),
			Steps: []capacity.Step{step(sharing("s1", "shared"), "b")}}, nil},
		{"an earlier plan for a pod that is known, which shares its claim", capacity.Trial{Nodes: []capacity.TrialNode{planned("a"), planned("b")}, Promised: own(named(1, "a")),
			Steps: []capacity.Step{step(sharing("s2", "shared"), "b"), step(sharing("s3", "shared"), "a")}}, []string{"0 DynamicResources: resourceclaim not available on the node"}},
		{"pods of which nothing is known", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: []capacity.Step{step(unknown, "a")}},
			[]string{"0 : what the pod's resourceclaims ask for isn't known"}},
		{"pods without claims", capacity.Trial{Nodes: []capacity.TrialNode{planned("a")}, Steps: append(steps("a", 0), step(pod("web", "web").Obj(), "a"))}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for range 2 { // nothing is left behind
				if diff := cmp.Diff(tc.want, c.verify(tc.trial)); diff != "" {
					t.Errorf("rejections (-want +got):\n%s", diff)
				}
			}
			if s, err := c.sched.Profiles["default-scheduler"].SharedDRAManager().ResourceClaims().GatherAllocatedState(); err != nil || len(s.AllocatedDevices) > 0 {
				t.Errorf("the real scheduler's devices are allocated: %v, %v", s.AllocatedDevices, err)
			}
		})
	}
}

// TestDevicesThatAreBeingPublished: a driver has published a part of its pool, or no devices yet. Until it is done the node has those that are expected,
// not fewer and not more.
func TestDevicesThatAreBeingPublished(t *testing.T) {
	slice := func(of int64, names ...string) *resourcev1.ResourceSlice {
		s := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "real-gpu"}, Spec: resourcev1.ResourceSliceSpec{
			Driver: "gpu.example.com", NodeName: ptr.To("real"), Pool: resourcev1.ResourcePool{Name: "real", ResourceSliceCount: of, Generation: 1}}}
		for _, name := range names {
			s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: name})
		}
		return s
	}
	const none = "DynamicResources: cannot allocate all claims"
	for name, tc := range map[string]struct {
		slice *resourcev1.ResourceSlice
		want  []string
	}{
		"no devices yet":    {slice(1), []string{"2 " + none}},
		"a part":            {slice(2, "a"), []string{"2 " + none}},
		"all, which is one": {slice(1, "a"), []string{"1 " + none, "2 " + none}},
	} {
		t.Run(name, func(t *testing.T) {
			var of *devices.Source
			objects := []runtime.Object{gpuClass(), tc.slice, node("real", "z1").Obj()}
			for i := range 3 {
				objects = append(objects, gpuClaim(fmt.Sprintf("of-p%d", i), fmt.Sprintf("p%d", i)))
			}
			c := newCluster(t, objects, withDevices(t, &of))
			of.SliceChanged(tc.slice, false)
			var steps []capacity.Step
			for i := range 3 {
				steps = append(steps, step(gpuPod(fmt.Sprintf("p%d", i)), "real"))
			}
			booting := capacity.TrialNode{Node: node("real", "z1").Obj(), Devices: of.Template("gpus", "g5.xlarge", "")}
			if diff := cmp.Diff(tc.want, c.verify(capacity.Trial{Nodes: []capacity.TrialNode{booting}, Steps: steps})); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFreeDevicesOfNodes: nodes show how many pods their published devices are enough for.
func TestFreeDevicesOfNodes(t *testing.T) {
	var of *devices.Source
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "real-gpu"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.example.com", NodeName: ptr.To("real"), Pool: resourcev1.ResourcePool{Name: "real", ResourceSliceCount: 1}, Devices: []resourcev1.Device{{Name: "a"}, {Name: "b"}}}}
	taken := gpuClaim("taken", "gone")
	taken.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{
		{Request: "gpu", Driver: "gpu.example.com", Pool: "real", Device: "a"}}}}
	c := newCluster(t, []runtime.Object{gpuClass(), gpuClaim("of-p0", "p0"), taken, slice, node("real", "z1").Obj(), node("bare", "z1").Obj()}, withDevices(t, &of))
	of.SliceChanged(slice, false)
	if got := c.world.Nodes(nil)[1].VolumesFree; got != nil {
		t.Errorf("before a pod asks for devices: %v", got)
	}
	key, err := of.Of(gpuPod("p0"), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.world.Nodes(nil) {
		if got, want := n.VolumesFree, map[string]int64{key: map[string]int64{"real": 1, "bare": 0}[n.Name]}; !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", n.Name, got, want)
		}
	}
}
