package simulate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const lvmKey = "topology.topolvm.io/node"

// counted returns a driver that publishes its capacity, a storage class for it and a claim for 10Gi.
func counted(driver, class, claim string) []runtime.Object {
	return []runtime.Object{
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}},
		&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)},
		&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claim}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}}}},
	}
}

func publishes(name, class, size, key, value string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, StorageClassName: class,
		Capacity: ptr.To(resource.MustParse(size)), NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}}
}

func onNode(name, driver, key string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: driver, NodeID: name, TopologyKeys: []string{key}}}}}
}

// VolumeBinding itself checks storage capacity: what drivers have published, and on a hypothetical node the assumed node-local
// capacity.
func TestVerifyStorageCapacity(t *testing.T) {
	objects := append(counted("topolvm.io", "lvm", "local"), counted("san.example.com", "san", "zonal")...)
	objects = append(objects,
		node("roomy", "z1").Label(lvmKey, "roomy").Obj(), onNode("roomy", "topolvm.io", lvmKey), publishes("roomy", "lvm", "20Gi", lvmKey, "roomy"),
		node("full", "z1").Label(lvmKey, "full").Obj(), onNode("full", "topolvm.io", lvmKey), publishes("full", "lvm", "5Gi", lvmKey, "full"),
		node("unsaid", "z2").Label(lvmKey, "unsaid").Obj(),
		node("san", "z1").Obj(), onNode("san", "san.example.com", corev1.LabelTopologyZone), publishes("z1", "san", "20Gi", corev1.LabelTopologyZone, "z1"))
	c := newCluster(t, objects)
	local, zonal := pod("local", "local").PVC("local").Obj(), pod("zonal", "zonal").PVC("zonal").Obj()
	const tooSmall = "VolumeBinding: node(s) did not have enough free storage"
	got := c.verify(capacity.Trial{
		Alone: true,
		Nodes: append(hypothetical(node("new", "z1"), node("new-z2", "z2"), node("full", "z1").Label(lvmKey, "full")),
			capacity.TrialNode{Node: node("unsaid", "z2").Label(lvmKey, "unsaid").Obj(), Instead: true}),
		Steps: []capacity.Step{
			step(local, "roomy"), step(local, "full"), step(local, "unsaid"), step(local, "new"), step(local, "new-z2"), step(local, "roomy"), step(local, "san"),
			step(zonal, "roomy"), step(zonal, "new"), step(zonal, "new-z2"),
		},
	})
	if diff := cmp.Diff([]string{"1 " + tooSmall, "2 " + tooSmall, "6 " + tooSmall, "9 " + tooSmall}, got); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// The planner gets what is published for each node, less the claims of pods on the node whose volumes don't exist yet.
func TestNodesTellTheirStorage(t *testing.T) {
	objects := append(counted("topolvm.io", "lvm", "local"),
		node("a", "z1").Label(lvmKey, "a").Obj(), onNode("a", "topolvm.io", lvmKey), publishes("a", "lvm", "20Gi", lvmKey, "a"),
		node("b", "z1").Label(lvmKey, "b").Obj(), onNode("b", "topolvm.io", lvmKey),
		bound(pod("p", "p").PVC("local"), "a"))
	c := newCluster(t, objects)
	got := map[string]int64{}
	for _, n := range c.world.Nodes(nil) {
		got[n.Name] = n.VolumesFree[capacity.StorageOf("lvm")]
	}
	if diff := cmp.Diff(map[string]int64{"a": 10 << 30, "b": 0}, got); diff != "" {
		t.Errorf("storage (-want +got):\n%s", diff)
	}
}
