package ledger

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// promised is a pod with a promise on a claim whose instance has been launched.
func promised(t *testing.T, l *Ledger, now time.Time) {
	t.Helper()
	c := testClass("a", 100, 0)
	l.Submit(capacity.PodRef{UID: "p"}, c, now)
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Commit("1", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "p"}, Node: "claim"}}, now)
	l.Launching("claim", now)
}

// Nobody knows the name before the kubelet brings its Node, and the Node is seen before the name is told.
func TestNameIsToldAfterTheNodeWasSeen(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	promised(t, l, now)
	st := NodeStatus{ProviderID: "id", Managed: true, Registered: true}
	l.Cached("late", st, now)
	if !l.Gated("p") {
		t.Fatal("let go for a node that nobody has matched")
	}
	l.Named("claim", "late", "id")
	if node, wait := l.Pin("p"); node != "late" {
		t.Errorf("pinned to %q (%s), want its node", node, wait)
	}
	if !l.IsNamed("claim", "late") || l.IsNamed("claim", "other") || !l.IsNamed("nobody", "x") {
		t.Error("which names are known is wrong")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// The kubelet registers under another name than the one its Node was created under ahead of it.
func TestNodeComesUnderAnotherName(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	promised(t, l, now)
	l.Named("claim", "expected", "id")
	l.Cached("expected", NodeStatus{ProviderID: "id", Managed: true}, now)
	if l.Gated("p") {
		t.Fatal("not let go for the node that was created ahead")
	}
	l.Cached("real", NodeStatus{ProviderID: "id", Managed: true, Registered: true}, now)
	l.Named("claim", "real", "id")
	if node, wait := l.Pin("p"); node != "real" {
		t.Errorf("pinned to %q (%s), want the node as it is called", node, wait)
	}
	l.Uncached("expected", "id", now)
	if l.Gated("p") {
		t.Error("the end of the Node that was made ahead takes the promise with it")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// The same, and the new Node has not been seen yet: the promise waits for it.
func TestNodeIsToComeUnderAnotherName(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	promised(t, l, now)
	l.Named("claim", "expected", "id")
	l.Cached("expected", NodeStatus{ProviderID: "id", Managed: true}, now)
	l.Named("claim", "real", "id")
	if !l.Gated("p") {
		t.Error("let go for a node that nobody has seen")
	}
	l.Cached("real", NodeStatus{ProviderID: "id", Managed: true, Registered: true}, now)
	if node, wait := l.Pin("p"); node != "real" {
		t.Errorf("pinned to %q (%s)", node, wait)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
