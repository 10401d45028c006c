package ledger

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reserve adds a pod with a reservation on a claim whose instance was launched.
func reserve(t *testing.T, l *Ledger, now time.Time) {
	t.Helper()
	c := testClass("a", 100, 0)
	l.Submit(capacity.PodRef{UID: "p"}, c, now)
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Commit("1", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "p"}, Node: "claim"}}, now)
	l.Launching("claim", now)
}

// The name is unknown until the kubelet registers its Node, and the Node is seen before the name is recorded.
func TestNodeIsNamedAfterItWasSeen(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	reserve(t, l, now)
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

// The kubelet registers under another name than the one under which its Node was created ahead.
func TestNodeComesUnderAnotherName(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	reserve(t, l, now)
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

// The same, but the new Node has not been seen yet: the reservation waits for it.
func TestNodeIsToComeUnderAnotherName(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	reserve(t, l, now)
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
