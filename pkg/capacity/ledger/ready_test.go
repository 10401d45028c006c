package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
)

// A pod that would be evicted from a node that isn't Ready waits until the node is Ready, and its gate closes again when the node no
// longer is.
func TestPodsThatWaitForReady(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("fast", 100, 0)
	c.Bind, c.BindReason = capacity.BindReady, "tolerates not-ready for 5s only"
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	for _, step := range []struct {
		name string
		st   NodeStatus
		shut bool
	}{
		{"the Node is there", NodeStatus{Managed: true}, true},
		{"its kubelet has registered", NodeStatus{Managed: true, Registered: true}, true},
		{"and is Ready", NodeStatus{Managed: true, Registered: true, Ready: true}, false},
		{"not any more", NodeStatus{Managed: true, Registered: true}, true},
		{"Ready again", NodeStatus{Managed: true, Registered: true, Ready: true}, false},
	} {
		l.Cached("n1", step.st, now)
		if shut, why := l.Gate("a"); shut != step.shut {
			t.Errorf("%s: gate shut: %t (%s), want %t", step.name, shut, why, step.shut)
		}
		// A pod without a plan is treated the same.
		if why := l.Object("n1", &Ask{UID: "stranger", Class: c}, cpuOf{allocatable: 1000}); (why != nil) != step.shut {
			t.Errorf("%s: a stranger is told %q, want it refused: %t", step.name, why, step.shut)
		}
		if err := check(l); err != nil {
			t.Fatal(step.name, err)
		}
	}
}

// A taint that appears between the pod's Filter and its Reserve is seen in time: otherwise the pod would be evicted at once.
func TestTaintsThatComeBeforeThePodIsAssumed(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("web", 100, 0)
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	l.Cached("n1", NodeStatus{Managed: true}, now)
	if node, wait := l.Pin("a"); node != "n1" {
		t.Fatalf("pinned to %q (%s), want n1", node, wait)
	}
	tainted := NodeStatus{Managed: true, Taints: []corev1.Taint{{Key: "scanner", Effect: corev1.TaintEffectNoExecute}}}
	l.Cached("n1", tainted, now)
	if why := l.Assume("a", "n1", false); why == nil {
		t.Error("a pod is assumed on a node with a taint that it doesn't tolerate")
	}
	if shut, _ := l.Gate("a"); !shut {
		t.Error("its gate is open")
	}
	if err := check(l); err != nil {
		t.Fatal(err)
	}
	l.Cached("n1", NodeStatus{Managed: true}, now)
	if node, wait := l.Pin("a"); node != "n1" {
		t.Errorf("without the taint it is pinned to %q (%s), want n1", node, wait)
	}
	if why := l.Assume("a", "n1", false); why != nil {
		t.Errorf("without the taint it isn't assumed: %s", why)
	}
}

// Nobody knows what a node leaves for pods whose user data can't be read, until its kubelet has registered.
func TestUnreadUserData(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("web", 100, 0)
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	for _, step := range []struct {
		st   NodeStatus
		shut bool
	}{{NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: nodestatus.NothingCertain}}, true}, {NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: nodestatus.NothingCertain}, Registered: true}, false}} {
		l.Cached("n1", step.st, now)
		if shut, why := l.Gate("a"); shut != step.shut {
			t.Errorf("%+v: gate shut: %t (%s), want %t", step.st, shut, why, step.shut)
		}
		if why := l.Object("n1", &Ask{UID: "stranger", Class: c}, cpuOf{allocatable: 1000}); (why != nil) != step.shut {
			t.Errorf("%+v: a pod without a plan is told %v, want it refused: %t", step.st, why, step.shut)
		}
	}
}
