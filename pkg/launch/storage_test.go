package launch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

func lvmOn(node, size string) *storagev1.CSIStorageCapacity {
	return &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: node}, StorageClassName: "lvm", Capacity: ptr.To(resource.MustParse(size)),
		NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"node": node}}}
}

// A pod with a volume on node-local storage waits until that has been published, on a node that is otherwise initialized, and keeps its
// reservation there meanwhile.
func TestPodsWaitForStorageToBePublished(t *testing.T) {
	w := newWorld(t)
	w.build()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	w.parts.Nodes.states.storage = storage.New(f)
	objects := f.Storage().V1().CSIStorageCapacities().Informer().GetStore()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{labelPool: "pool", labelRegistered: "true", labelInitialized: "true"}}}
	w.parts.Nodes.NodeCached(node)
	key := capacity.StorageOf("lvm")
	class, err := capacity.ClassOf(w.pod(0), capacity.VolumeInfo{Attach: map[string]int64{key: 10 << 30}, Unbound: true})
	if err != nil {
		t.Fatal(err)
	}
	ref := capacity.RefOf(w.pod(0))
	w.reservations.Submit(ref, class)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Existing("node", w.parts.Nodes.states.status(node))
		l.Commit("p", []capacity.Placement{{Class: class, Pod: ref, Node: "node"}}, now)
	})
	waits := func(when string, want bool) {
		t.Helper()
		closed, why := w.reservations.Gate(ref.UID)
		if closed != want || closed && !strings.Contains(why, "no capacity of storage class lvm has been published for its node yet") {
			t.Errorf("%s: waits %t: %s", when, closed, why)
		}
	}
	waits("nothing is published", true)
	handler := w.parts.Nodes.StorageCapacities()
	other, mine := lvmOn("other", "20Gi"), lvmOn("node", "20Gi")
	add(t, objects.Add(other))
	handler.OnAdd(other, false)
	waits("another node's is published", true)
	add(t, objects.Add(mine))
	handler.OnAdd(mine, false)
	waits("the kubelet has yet to label the node", true)
	labeled := node.DeepCopy()
	labeled.Labels["node"] = "node"
	w.parts.Nodes.NodeCached(labeled)
	waits("it is published", false)
	if diff := cmp.Diff(map[string]int64{key: 20 << 30}, w.parts.Nodes.states.status(labeled).VolumeLimits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	add(t, objects.Delete(mine))
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "d/node", Obj: mine})
	if got := w.parts.Nodes.states.status(labeled); len(got.Drivers) > 0 || len(w.parts.Nodes.states.seen["node"].Drivers) > 0 {
		t.Errorf("drivers %v when the capacity is gone", got.Drivers)
	}
}

// A heartbeat of an unmanaged node is no change: what is published for it has been there all the time.
func TestStorageOfUnmanagedNodesIsNotReadWithEachHeartbeat(t *testing.T) {
	w := newWorld(t)
	w.build()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	w.parts.Nodes.states.storage = storage.New(f)
	add(t, f.Storage().V1().CSIStorageCapacities().Informer().GetStore().Add(lvmOn("node", "20Gi")))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Labels: map[string]string{"node": "node"}}}
	w.parts.Nodes.NodeCached(node)
	select { // the Node itself is one
	case <-w.parts.Triggers.OfferingsChanged():
	default:
	}
	for range 5 {
		w.parts.Nodes.NodeCached(node.DeepCopy())
	}
	select {
	case <-w.parts.Triggers.OfferingsChanged():
		t.Error("a heartbeat was a change of the cluster")
	default:
	}
}

func add(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
