package provisioning

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

func lvmOn(node, size string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: node}, StorageClassName: "lvm", Capacity: ptr.To(resource.MustParse(size)),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"node": node}}}
}

// Storage that pods count on is expected: on a node in flight, and on an initialized one as long as pods wait there for it. On all other
// nodes, storage that hasn't been published doesn't exist.
func TestStorageThatIsAwaited(t *testing.T) {
	key := capacity.StorageOf("lvm")
	db := ledger.Promise{Class: &capacity.Class{Pod: &corev1.Pod{}, Drivers: []string{key}, Volumes: map[string]int64{key: 10}}}
	template := &capacity.Node{Allocatable: capacity.Resources{}, VolumesFree: map[string]int64{key: 25}}
	for _, tc := range []struct {
		name    string
		f       *ledger.InFlight
		st      ledger.NodeStatus
		shown   int64
		awaited bool
		want    map[string]int64
	}{
		{"coming up", &ledger.InFlight{Template: template}, ledger.NodeStatus{Managed: true}, 0, true, map[string]int64{key: 25}},
		{"coming up, with a pod", &ledger.InFlight{Template: template, Slots: []ledger.Promise{db}}, ledger.NodeStatus{Managed: true}, 0, true, map[string]int64{key: 15}},
		{"coming up, and nobody knows what it has", &ledger.InFlight{Template: &capacity.Node{}}, ledger.NodeStatus{Managed: true}, 0, true, map[string]int64{}},
		{"coming up, and nobody knows what it was bought as", nil, ledger.NodeStatus{Managed: true}, 0, true, map[string]int64{}},
		{"coming up, and published", &ledger.InFlight{Template: template, Slots: []ledger.Promise{db}}, ledger.NodeStatus{Managed: true, Drivers: []string{key}}, 20, false, map[string]int64{key: 10}},
		{"up, and a pod waits for it", &ledger.InFlight{Template: template, Slots: []ledger.Promise{db}}, ledger.NodeStatus{Managed: true, Initialized: true}, 0, true, map[string]int64{key: 15}},
		{"up, and published", &ledger.InFlight{Template: template, Slots: []ledger.Promise{db}}, ledger.NodeStatus{Managed: true, Initialized: true, Drivers: []string{key}}, 20, false, map[string]int64{key: 10}},
		{"up, and other pods wait", &ledger.InFlight{Template: template}, ledger.NodeStatus{Managed: true, Initialized: true}, 0, false, map[string]int64{key: 0}},
		{"somebody else's", nil, ledger.NodeStatus{}, 0, false, map[string]int64{key: 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &capacity.Node{Name: "n", Free: capacity.Resources{}, VolumesFree: map[string]int64{key: tc.shown}}
			if got := awaitsStorage(n, tc.f, tc.st); got != tc.awaited {
				t.Errorf("awaited: %t", got)
			}
			if diff := cmp.Diff(tc.want, (&View{}).promise(n, tc.f, tc.st, (&viewer{}).planned(tc.f)).VolumesFree); diff != "" {
				t.Errorf("volumes (-want +got):\n%s", diff)
			}
		})
	}
}

// A planner recognizes instance types by their slice: it changes only when what nodes have published does.
func TestTypesHaveWhatNodesHaveShown(t *testing.T) {
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	s := limits.NewStorage(storage.New(f))
	add(t, f.Storage().V1().CSIDrivers().Informer().GetStore().Add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "topolvm.io"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: ptr.To(true)}}))
	add(t, f.Storage().V1().StorageClasses().Informer().GetStore().Add(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "lvm"}, Provisioner: "topolvm.io"}))
	types := []*capacity.InstanceType{{Name: "large", VolumeLimits: map[string]int64{"ebs": 25}}, {Name: "small"}}
	pools := []*capacity.Pool{{Name: "disks", Types: types}, {Name: "plain", Types: types}}
	if got := s.On(pools); got[0] != pools[0] || got[1] != pools[1] {
		t.Error("pools are others although nothing is known")
	}
	add(t, f.Core().V1().Nodes().Informer().GetStore().Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{
		capacity.LabelNodePool: "disks", corev1.LabelInstanceTypeStable: "large", "node": "n"}}}))
	objects := f.Storage().V1().CSIStorageCapacities().Informer().GetStore()
	add(t, objects.Add(lvmOn("n", "10Gi")))
	got := s.On(pools)
	if diff := cmp.Diff(map[string]int64{"ebs": 25, "storageclass/lvm": 10 << 30}, got[0].Types[0].VolumeLimits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if got[0].Types[1] != types[1] || got[1] != pools[1] || len(types[0].VolumeLimits) != 1 {
		t.Error("what nobody has shown is another, or what was given was changed")
	}
	if again := s.On(pools); &again[0].Types[0] != &got[0].Types[0] {
		t.Error("types are others although nothing has changed")
	}
	add(t, objects.Update(lvmOn("n", "20Gi")))
	if again := s.On(pools); again[0].Types[0].VolumeLimits["storageclass/lvm"] != 20<<30 {
		t.Error("types are the same although a node has shown more")
	}
}

func add(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
