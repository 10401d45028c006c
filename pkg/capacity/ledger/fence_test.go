package ledger

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

var upAndRunning = NodeStatus{ProviderID: "id", Managed: true, Registered: true, Initialized: true}

// The removal of an initialized node: from one moment on nothing is planned there and only DaemonSet pods may go there, and the caller
// learns about pods that were assumed before.
func TestClosedNodesTakeNobody(t *testing.T) {
	l, c := New(), testClass("c", 1000, 0)
	promised := func(uids ...types.UID) {
		l.Existing("n", upAndRunning)
		for _, uid := range uids {
			ref := capacity.PodRef{UID: uid}
			l.Submit(ref, c, epoch)
			l.Commit("p", []capacity.Placement{{Class: c, Pod: ref, Node: "n"}}, epoch)
		}
	}
	promised("lands", "fails", "waits")
	for _, uid := range []types.UID{"lands", "fails"} {
		if node, wait := l.Pin(uid); node != "n" {
			t.Fatalf("%s is pinned to %q (%s)", uid, node, wait)
		}
		if why := l.Assume(uid, "n", false); why != nil {
			t.Fatal(why)
		}
	}
	if !l.Close("n", upAndRunning, epoch) {
		t.Error("two pods are being bound there, and nobody says so")
	}
	if queued := l.QueuedPods(l.Queue()); len(queued) != 1 || queued[0].Ref.UID != "waits" {
		t.Errorf("want the pod that was promised room planned anew:\n%s", l)
	}
	l.Unfence("n")
	for _, daemon := range []bool{false, true} {
		object, assume := l.Object("n", &Ask{UID: "v", Class: c, DaemonSet: daemon}, nil), l.Assume("v", "n", daemon)
		if (object == nil) != daemon || (assume == nil) != daemon {
			t.Errorf("daemon=%t: Filter says %q, Reserve says %q", daemon, object, assume)
		}
	}
	l.Unassume("v", "n", epoch)
	if promised("waits"); len(l.QueuedPods(l.Queue())) != 1 {
		t.Errorf("planned on a node that ends:\n%s", l)
	}
	l.Settled("lands", "n")
	if !l.Close("n", upAndRunning, epoch) {
		t.Error("a pod is being bound there, and nobody says so")
	}
	l.Unassume("fails", "n", epoch)
	if len(l.QueuedPods(l.Queue())) != 2 {
		t.Errorf("want the pod that could not be bound planned anew:\n%s", l)
	}
	if l.Close("n", upAndRunning, epoch) {
		t.Error("no pod is being bound there")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
	l.Uncached("n", "id", epoch)
	l.Gone("waits")
	l.Gone("fails")
	if !l.Empty() {
		t.Errorf("left behind:\n%s", l)
	}
}

// An emptiness decision that was carried out is final: its fence can't be lifted any more.
func TestClosingWhatIsFenced(t *testing.T) {
	l := New()
	if !l.Fence("n") || l.Close("n", upAndRunning, epoch) {
		t.Fatal("not fenced, or something is on its way there")
	}
	l.Unfence("n")
	if why := l.Assume("u", "n", false); why == nil {
		t.Error("a pod may go to a node that ends")
	}
}

// Names are reused. A fence belongs to one instance and ends with it, whether the end was observed or not.
func TestNamesOfClosedNodes(t *testing.T) {
	next := upAndRunning
	next.ProviderID = "id2"
	t.Run("another machine has it", func(t *testing.T) {
		l := New()
		l.Close("n", upAndRunning, epoch)
		l.Cached("n", next, epoch)
		if why := l.Assume("u", "n", false); why != nil {
			t.Error(why)
		}
		l.Settled("u", "n")
		if !l.Empty() {
			t.Errorf("left behind:\n%s", l)
		}
	})
	t.Run("a claim waits for it", func(t *testing.T) {
		for _, closedFirst := range []bool{true, false} {
			l := New()
			l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
			if closedFirst {
				l.Close("n", upAndRunning, epoch)
			}
			l.Named("claim", "n", "id2")
			l.Close("n", upAndRunning, epoch)
			if why := l.Assume("u", "n", false); why == nil {
				t.Errorf("closed first %t: a pod may go to a node that ends", closedFirst)
			}
			if l.nodes["claim"].fenced {
				t.Errorf("closed first %t: the claim's own node is fenced", closedFirst)
			}
			coming := next
			coming.Initialized = false
			l.Cached("n", coming, epoch)
			if why := l.Assume("u", "n", false); why != nil {
				t.Errorf("closed first %t: the claim's own node: %s", closedFirst, why)
			}
		}
	})
	t.Run("a claim waits for it, and the Node doesn't say whose it is", func(t *testing.T) {
		l := New()
		l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
		l.Named("claim", "n", "id2")
		nobodys := upAndRunning
		nobodys.ProviderID = ""
		l.Close("n", nobodys, epoch)
		if why := l.Assume("u", "n", false); why == nil {
			t.Error("a pod may go to a node that ends")
		}
		l.Cached("n", next, epoch)
		if why := l.Assume("u", "n", false); why != nil {
			t.Errorf("the claim's own node: %s", why)
		}
	})
	t.Run("its own claim is told late", func(t *testing.T) {
		l := New()
		l.Close("n", upAndRunning, epoch)
		l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
		l.Named("claim", "n", "id")
		if why := l.Assume("u", "n", false); why == nil {
			t.Error("a pod may go to a node that ends")
		}
		l.ClaimGone("claim", "its NodeClaim was deleted", false, epoch)
		if why := l.Assume("u", "n", false); why == nil {
			t.Error("a pod may go to a node that ends, once its claim is known to")
		}
		l.Uncached("n", "id", epoch)
		if !l.Empty() {
			t.Errorf("left behind:\n%s", l)
		}
	})
}
