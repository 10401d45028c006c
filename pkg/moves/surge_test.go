package moves

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// deployed returns a pod of a Deployment.
func deployed(deployment, revision, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: deployment + "-" + revision, UID: types.UID(deployment + revision), Labels: map[string]string{"pod-template-hash": revision},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: deployment + "-" + revision, UID: types.UID(deployment + "-" + revision), Controller: new(true)}}},
		Spec: corev1.PodSpec{SchedulerName: "s", NodeName: node}}
}

// A pod of a new ReplicaSet takes what is reserved for its predecessor of another; what is reserved for the other pods of the node stays
// reserved for nobody until the drain begins. A move that surges isn't given up for demand, and is paid once.
func TestSurge(t *testing.T) {
	r := reservations.New(clocktesting.NewFakeClock(time.Unix(1000, 0)))
	classes := pending.NewClasses(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	m := New(r, classes)
	web, other := deployed("web", "one", "a"), deployed("other", "one", "a")
	r.Fence("a")
	var reserved []capacity.Placement
	for _, pod := range []*corev1.Pod{web, other} {
		_, class, err := classes.Successor(pod)
		if err != nil {
			t.Fatal(err)
		}
		reserved = append(reserved, capacity.Placement{Class: class, Owner: pod.OwnerReferences[0].UID, Node: "c"})
	}
	r.Step(func(l *ledger.Ledger, at time.Time) {
		l.Existing("c", ledger.NodeStatus{Managed: true, Initialized: true})
		if !l.Reserve("a", reserved, []string{"a", "a"}, at.Add(Hold), at) {
			t.Fatal("nothing is reserved")
		}
	})
	m.Reserved("a", consolidation.Move{Nodes: []string{"a"}, Reason: consolidation.Underutilized}, map[string]bool{"c": true})
	adopts := func(pod *corev1.Pod) bool {
		class, err := classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		return r.Adopt(capacity.RefOf(pod), class)
	}
	if err := m.Surge("a", map[string][]*corev1.Pod{"a": {web, other}}, []*corev1.Pod{web}); err != nil {
		t.Fatal(err)
	}
	if m.GiveUpAll() || len(m.TakeUnpaid()) != 1 {
		t.Error("it was given up for demand, or is not to be paid")
	}
	if !adopts(deployed("web", "two", "")) {
		t.Error("the pod of the new ReplicaSet gets nothing")
	}
	if adopts(deployed("other", "two", "")) || adopts(deployed("other", "one", "")) {
		t.Error("a pod got what is reserved for one that was not evicted yet")
	}
	if ready, err := m.Ready("a", map[string][]*corev1.Pod{"a": {other}}); !ready || err != nil {
		t.Errorf("while it surges it is ready: %v (%v)", ready, err)
	}
	if _, err := m.Ready("a", map[string][]*corev1.Pod{"a": {other, deployed("late", "one", "a")}}); err == nil || !strings.Contains(err.Error(), "d/late-one") {
		t.Errorf("of a pod without capacity: %v", err)
	}
	if err := m.Begin("a", map[string][]*corev1.Pod{"a": {other}}); err != nil {
		t.Fatal(err)
	}
	if len(m.TakeUnpaid()) != 0 {
		t.Error("it is to be paid twice")
	}
	next := deployed("other", "one", "")
	next.UID = "next"
	if !adopts(next) {
		t.Error("the successor of the evicted pod gets nothing")
	}
}
