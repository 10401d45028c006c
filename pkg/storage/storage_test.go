package storage

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

const (
	driver  = "topolvm.io"
	nodeKey = "topology.topolvm.io/node"
	zoneKey = "topology.example.com/zone"
)

// read returns the Capacities for informers with these objects.
func read(t *testing.T, objects ...runtime.Object) *Capacities {
	t.Helper()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	c := New(f)
	if again := New(f); again.csiNodes != c.csiNodes { // several readers share the informers
		t.Fatal("another index")
	}
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Node:
			err = f.Core().V1().Nodes().Informer().GetStore().Add(o)
		case *corev1.PersistentVolume:
			err = f.Core().V1().PersistentVolumes().Informer().GetStore().Add(o)
		case *storagev1.CSIDriver:
			err = f.Storage().V1().CSIDrivers().Informer().GetStore().Add(o)
		case *storagev1.CSINode:
			err = f.Storage().V1().CSINodes().Informer().GetStore().Add(o)
		case *storagev1.StorageClass:
			err = f.Storage().V1().StorageClasses().Informer().GetStore().Add(o)
		case *storagev1.CSIStorageCapacity:
			err = f.Storage().V1().CSIStorageCapacities().Informer().GetStore().Add(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func csiDriver(counts *bool) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driver}, Spec: storagev1.CSIDriverSpec{StorageCapacity: counts}}
}

func class(name string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver}
}

func node(name string, more ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: "z1"}}}
	for i := 0; i < len(more); i += 2 {
		n.Labels[more[i]] = more[i+1]
	}
	return n
}

func csiNode(name, id string, topology ...string) *storagev1.CSINode {
	return &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
		{Name: "ebs.csi.aws.com", NodeID: "i-1", TopologyKeys: []string{corev1.LabelTopologyZone}},
		{Name: driver, NodeID: id, TopologyKeys: topology}}}}
}

func published(name, class, size string, topology *metav1.LabelSelector) *storagev1.CSIStorageCapacity {
	out := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name}, StorageClassName: class, NodeTopology: topology}
	if size != "" {
		out.Capacity = ptr.To(resource.MustParse(size))
	}
	return out
}

func labeled(pairs ...string) *metav1.LabelSelector {
	out := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		out.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return out
}

func TestFollows(t *testing.T) {
	for _, tc := range []struct {
		name    string
		counts  *bool
		objects []runtime.Object
		want    bool
	}{
		{"the driver doesn't count", nil, nil, false},
		{"it says that it doesn't", ptr.To(false), nil, false},
		{"nothing is known", ptr.To(true), nil, true},
		{"a segment is called like its node", ptr.To(true), []runtime.Object{node("a", nodeKey, "a"), csiNode("a", "x", nodeKey)}, true},
		{"a segment is called like the driver calls its node", ptr.To(true), []runtime.Object{node("a", nodeKey, "i-0abc"), csiNode("a", "i-0abc", nodeKey)}, true},
		{"a segment is a host", ptr.To(true), []runtime.Object{node("a", corev1.LabelHostname, "host"), csiNode("a", "x", corev1.LabelTopologyZone, corev1.LabelHostname)}, true},
		{"a segment is a zone", ptr.To(true), []runtime.Object{node("a", zoneKey, "z1"), csiNode("a", "x", zoneKey)}, false},
		{"one segment for all", ptr.To(true), []runtime.Object{node("a"), csiNode("a", "x")}, false},
		{"the kubelet has yet to label the only node", ptr.To(true), []runtime.Object{node("a"), csiNode("a", "x", zoneKey)}, true},
		{"the Node has gone before its CSINode", ptr.To(true), []runtime.Object{csiNode("a", "x", zoneKey)}, true},
		{"what is published of zones, before any node", ptr.To(true), []runtime.Object{published("z1", "lvm", "1Gi", labeled(corev1.LabelTopologyZone, "z1"))}, false},
		{"what is published of all nodes", ptr.To(true), []runtime.Object{published("all", "lvm", "1Gi", &metav1.LabelSelector{})}, false},
		{"what a node that has gone left behind", ptr.To(true), []runtime.Object{published("gone", "lvm", "1Gi", labeled(nodeKey, "gone"))}, true},
		{"what is published of another class's zones", ptr.To(true), []runtime.Object{published("z1", "other", "1Gi", labeled(corev1.LabelTopologyZone, "z1"))}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := read(t, append(tc.objects, csiDriver(tc.counts), class("lvm"))...)
			if got := c.Follows(class("lvm")); got != tc.want {
				t.Errorf("follows the node: %t", got)
			}
		})
	}
	if (*Capacities)(nil).Follows(class("lvm")) || read(t).Follows(class("lvm")) {
		t.Error("a class without a driver follows the node")
	}
}

func TestOn(t *testing.T) {
	in := func(key string, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}}}
	}
	limited := published("limited", "limited", "9Gi", labeled(nodeKey, "a"))
	limited.MaximumVolumeSize = ptr.To(resource.MustParse("3Gi"))
	c := read(t, limited,
		published("plain", "plain", "1Gi", labeled(nodeKey, "a", corev1.LabelTopologyZone, "z1")), published("plain-2", "plain", "2Gi", in(nodeKey, "b", "a")),
		published("zone", "zone", "4Gi", labeled(corev1.LabelTopologyZone, "z1")), published("all", "all", "5Gi", &metav1.LabelSelector{}),
		published("none", "none", "6Gi", nil), published("unsaid", "unsaid", "", labeled(nodeKey, "a")),
		published("elsewhere", "elsewhere", "7Gi", labeled(nodeKey, "a", corev1.LabelTopologyZone, "z2")), published("b", "b", "8Gi", in(nodeKey, "b")))
	want := map[string]int64{"storageclass/limited": 9 << 30, "storageclass/plain": 2 << 30, "storageclass/zone": 4 << 30, "storageclass/all": 5 << 30}
	if diff := cmp.Diff(want, c.On(node("a", nodeKey, "a").Labels)); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

// volume returns one of the driver's volumes on a node, in a zone.
func volume(name, size, node string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	pv.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"z1"}},
		{Key: nodeKey, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	return pv
}

func TestShown(t *testing.T) {
	var objects []runtime.Object
	add := func(name, pool, typ, size string, up bool) {
		n := node(name, nodeKey, name, labelPool, pool, corev1.LabelInstanceTypeStable, typ)
		if up {
			n.Labels[labelInitialized] = "true"
		}
		objects = append(objects, n, csiNode(name, name, nodeKey))
		if size != "" {
			objects = append(objects, published(name, "lvm", size, labeled(nodeKey, name)))
		}
	}
	add("a", "disks", "large", "10Gi", true)
	add("b", "disks", "large", "4Gi", true)
	objects = append(objects, volume("b1", "5Gi", "b"), volume("b2", "3Gi", "b"), volume("gone", "50Gi", "gone"))
	add("c", "disks", "small", "", true)   // without disks
	add("d", "disks", "coming", "", false) // the driver has not published yet
	add("e", "plain", "large", "", true)
	add("f", "new", "large", "", false)
	c := read(t, append(objects, csiDriver(ptr.To(true)), class("lvm"))...)
	shown := c.Shown()
	for _, tc := range []struct {
		name, pool, typ string
		want            map[string]int64
	}{
		{"the most of a type, less what volumes take", "disks", "large", map[string]int64{"storageclass/lvm": 12 << 30}},
		{"a type that has none", "disks", "small", map[string]int64{"storageclass/lvm": 0}},
		{"a type that is coming up", "disks", "coming", nil},
		{"a type that nobody has seen", "disks", "huge", nil},
		{"a pool none of whose nodes has any", "plain", "huge", map[string]int64{"storageclass/lvm": 0}},
		{"a pool whose first node is coming up", "new", "large", nil},
		{"a pool without nodes", "empty", "large", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, shown.Of(tc.pool, tc.typ)); diff != "" {
				t.Errorf("storage of a new node (-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(Shown{map[poolType]map[string]int64{}, map[string]map[string]int64{}}, read(t, append(objects, class("lvm"))...).Shown(), cmp.AllowUnexported(Shown{}, poolType{})); diff != "" {
		t.Errorf("without such a driver (-want +got):\n%s", diff)
	}
}

// VolumeBinding must find enough capacity on a node for which nothing has been published, and the published values otherwise.
func TestSupposed(t *testing.T) {
	c := read(t, csiDriver(ptr.To(true)), class("lvm"), class("ssd"), published("a", "ssd", "1Gi", labeled(nodeKey, "a")))
	got := c.Supposed(node("a", nodeKey, "a").Labels)
	if len(got) != 1 || got[0].StorageClassName != "lvm" || !Selector(got[0])(nil) || got[0].Capacity.Value() < 1<<60 {
		t.Errorf("supposed %+v", got)
	}
}

// Two volumes of 40Gi fit on a node with 100Gi whose driver creates none larger than 50Gi: VolumeBinding compares each with the
// largest possible volume, but sums are compared with all the capacity.
func TestSeveralVolumesHaveAllTheCapacity(t *testing.T) {
	limited := published("a", "lvm", "100Gi", labeled(nodeKey, "a"))
	limited.MaximumVolumeSize = ptr.To(resource.MustParse("50Gi"))
	n := node("a", nodeKey, "a", labelPool, "disks", corev1.LabelInstanceTypeStable, "large", labelInitialized, "true")
	c := read(t, n, csiNode("a", "a", nodeKey), limited, csiDriver(ptr.To(true)), class("lvm"))
	if got := c.Shown().Of("disks", "large")["storageclass/lvm"]; got < 80<<30 {
		t.Errorf("a pod with two volumes of 40Gi is refused everywhere: a new node is said to have %dGi", got>>30)
	}
}
