package simulate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestNodes(t *testing.T) {
	taints := []corev1.Taint{{Key: "example.com/startup", Effect: corev1.TaintEffectNoSchedule}}
	busy := node("busy", "z1").Capacity(map[corev1.ResourceName]string{
		corev1.ResourceCPU: "4", corev1.ResourceMemory: "16Gi", corev1.ResourcePods: "20", "example.com/gpu": "2",
	}).Taints(taints).Obj()
	bound := podOf("bound", "web", map[corev1.ResourceName]string{
		corev1.ResourceCPU: "1500m", corev1.ResourceMemory: "1Gi", "example.com/gpu": "1",
	}).Node("busy").PVC("data").Volume(corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}).Obj()
	scratch := st.MakePersistentVolumeClaim().Name("bound-scratch").Namespace("default").StorageClassName(ptr.To("gp2")).Obj()
	gp2 := st.MakeStorageClass().Name("gp2").Provisioner("kubernetes.io/aws-ebs").Obj() // migrated to ebs.csi.aws.com
	shared := claim("shared", "efs")
	efs := volume("efs", "z1")
	efs.Spec.CSI.Driver = "efs.csi.aws.com" // a driver without a limit
	csiNode := st.MakeCSINode().Name("busy").
		Driver(storagev1.CSINodeDriver{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To[int32](25)}}).
		Driver(storagev1.CSINodeDriver{Name: "efs.csi.aws.com"}).Obj()
	c := newCluster(t, []runtime.Object{
		node("idle", "z2").Unschedulable(true).Obj(), busy, bound, csiNode, claim("data", "vol"), volume("vol", "z1"), scratch, gp2, shared, efs,
	})
	assumed := pod("assumed", "web").Node("busy").PVC("data").PVC("shared").Obj()
	if err := c.sched.Cache.AssumePod(klog.FromContext(c.ctx), assumed); err != nil {
		t.Fatal(err)
	}
	c.refresh()

	const gi = 1 << 30
	want := []*capacity.Node{{
		Name:        "busy",
		Labels:      busy.Labels,
		Taints:      taints,
		Allocatable: capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 * gi, corev1.ResourceEphemeralStorage: 0, corev1.ResourcePods: 20, "example.com/gpu": 2},
		Free:        capacity.Resources{corev1.ResourceCPU: 1500, corev1.ResourceMemory: 15 * gi, corev1.ResourceEphemeralStorage: 0, corev1.ResourcePods: 18, "example.com/gpu": 1},
		Pods:        []*corev1.Pod{bound, assumed},
		VolumesFree: map[string]int64{"ebs.csi.aws.com": 23},
	}, {
		Name:          "idle",
		Labels:        map[string]string{corev1.LabelHostname: "idle", corev1.LabelTopologyZone: "z2"},
		Unschedulable: true,
		Allocatable:   capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 * gi, corev1.ResourceEphemeralStorage: 0, corev1.ResourcePods: 20},
		Free:          capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 * gi, corev1.ResourceEphemeralStorage: 0, corev1.ResourcePods: 20},
		Pods:          []*corev1.Pod{},
	}}
	if diff := cmp.Diff(want, c.world.Nodes(nil)); diff != "" {
		t.Errorf("Nodes (-want +got):\n%s", diff)
	}

	decorated := c.world.Nodes(func(n *capacity.Node, object *corev1.Node) *capacity.Node {
		if object.Spec.Unschedulable {
			return nil
		}
		changed := *n
		changed.InFlight, changed.Claim, changed.Taints = true, "claim", nil
		return &changed
	})
	want = want[:1]
	want[0].InFlight, want[0].Claim, want[0].Taints = true, "claim", nil
	if diff := cmp.Diff(want, decorated); diff != "" {
		t.Errorf("Nodes decorated (-want +got):\n%s", diff)
	}
}

func TestNodesAreMadeAnewOnlyWhenTheyChange(t *testing.T) {
	c := newCluster(t, nil)
	logger := klog.FromContext(c.ctx)
	a, b, gone := node("a", "z1").Obj(), node("b", "z1").Obj(), node("gone", "z1").Obj()
	c.load([]*corev1.Node{b, gone, a}, nil)
	before := c.world.Nodes(nil)

	if err := c.sched.Cache.AddPod(logger, pod("p", "web").Node("b").Obj()); err != nil {
		t.Fatal(err)
	}
	c.unload([]*corev1.Node{gone}, nil)
	after := c.world.Nodes(nil)
	if len(after) != 2 || after[0] != before[0] || after[1] == before[1] || after[1].Free[corev1.ResourceCPU] != 3000 {
		t.Errorf("after one pod on b: %v, before: %v", after, before)
	}
	if c.world.Has("gone") || !c.world.Has("a") {
		t.Error("Has doesn't say what is in the snapshot")
	}
	if len(c.world.nodes) != 2 {
		t.Errorf("%d nodes are remembered, want 2", len(c.world.nodes))
	}
	// Verify works on copies.
	c.verify(capacity.Trial{Steps: []capacity.Step{step(pod("web", "web").Obj(), "a")}})
	if again := c.world.Nodes(nil); again[0] != after[0] {
		t.Error("Verify changed a node of the snapshot")
	}
}
