package launch

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

func (w *world) knows(uid types.UID) bool {
	return w.pending.Get(uid) != nil || w.reservations.Knows(uid)
}

// A StatefulSet's pod is deleted and created again under its name while the watch is interrupted: informers report both as one update.
func TestPodThatWasReplacedIsNoDemandAnyMore(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.submit(2)
	old, made := w.pod(0), w.pod(0)
	made.UID = "again"
	w.pending.Handler().OnUpdate(old, made)
	if w.knows(old.UID) {
		t.Error("the pod that is gone is remembered")
	}
	if w.pending.Get("again") == nil {
		t.Error("the pod that came instead is not known")
	}
	if n := w.pending.Created("rs"); n != 2 {
		t.Errorf("its owner has %d pods, want 2", n)
	}
	waiting, _ := w.parts.demand.Gatherer.Gather(t.Context())
	for _, p := range waiting {
		if p.Ref.UID == old.UID {
			t.Error("the pod that is gone is planned for")
		}
	}
	if len(waiting) != 2 {
		t.Errorf("%d pods are planned for, want 2", len(waiting))
	}
}

// The replacing Node is another instance's: no gate may open for the one that was reserved.
func TestNodeThatWasReplacedHasGone(t *testing.T) {
	w := newWorld(t)
	w.build()
	node := func(uid types.UID, id string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, Labels: map[string]string{labelPool: "pool"}}}
		n.Spec.ProviderID = id
		return n
	}
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.AddNode("c", &capacity.Node{}, nil, true, now) })
	w.parts.Nodes.named("c", "n", "aws:///a/i-1")
	old := node("1", "aws:///a/i-1")
	cached := func() (yes bool) {
		w.reservations.Read(func(l ledger.Reader) { yes = l.InFlight()[0].Cached })
		return yes
	}
	w.parts.Nodes.NodeChanged(nil, old)
	if !cached() {
		t.Fatal("the claim's Node is there, and the ledger doesn't know")
	}
	w.parts.Nodes.NodeChanged(old, node("2", "aws:///a/i-2"))
	if cached() {
		t.Error("the claim's Node has gone, and the ledger doesn't know")
	}
}
