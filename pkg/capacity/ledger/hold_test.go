package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// ownedClass returns a class whose pods belong to a controller.
func ownedClass(key string) *capacity.Class {
	c := testClass(key, 100, 0)
	c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: new(true)}}}}
	return c
}

// moving reserves capacity for replacements of two pods of node old, on a node that is being launched.
func moving(l *Ledger, c *capacity.Class, now time.Time) {
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Move("1", []capacity.Placement{{Class: c, Owner: "rs", Node: "claim"}, {Class: c, Owner: "rs", Node: "claim"}}, []string{"old", "old"}, now.Add(time.Minute), now)
}

func TestRoomForSuccessors(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	moving(l, c, now)
	if !l.Launching("claim", now) {
		t.Fatal("a node for successors is not launched")
	}
	state := func() (n, up int) {
		held, up := l.Held("old")
		return held[Successor{"rs", "a"}], up
	}
	expect := func(when string, wantHeld, wantUp int) {
		t.Helper()
		if n, up := state(); n != wantHeld || up != wantUp {
			t.Errorf("%s: %d held, %d of them up, want %d, %d", when, n, up, wantHeld, wantUp)
		}
		if err := check(l); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	expect("launching", 2, 0)
	l.Named("claim", "node", "")
	l.Cached("node", NodeStatus{Managed: true}, now)
	expect("booting", 2, 0)
	l.Cached("node", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	expect("initialized", 2, 2)
	if l.Fence("node") {
		t.Error("a node that successors are to come to can be ended")
	}
	l.Tick(now.Add(59 * time.Second))
	l.Extend("old", now.Add(3*time.Minute))
	l.Tick(now.Add(2 * time.Minute))
	expect("extended", 2, 2)
	l.Adopt(capacity.PodRef{UID: "new"}, c, now)
	if node, wait := l.Pin("new"); node != "node" {
		t.Errorf("the successor is pinned to %q (%s)", node, wait)
	}
	expect("one has come", 1, 1)
	l.Tick(now.Add(3 * time.Minute))
	expect("time is over", 0, 0)
}

// Two nodes with pods of one owner are replaced. The new node of the second is initialized first, so that node is drained. Its successor goes
// there, and not to the other new node, which comes first in the plan and already takes pods while it boots.
func TestSuccessorGoesWhereANodeIsInitialized(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	for _, name := range []string{"first", "second"} {
		l.AddNode("claim-"+name, &capacity.Node{}, nil, false, now)
	}
	l.Move("1", []capacity.Placement{{Class: c, Owner: "rs", Node: "claim-first"}, {Class: c, Owner: "rs", Node: "claim-second"}}, []string{"old-1", "old-2"}, now.Add(time.Minute), now)
	for _, name := range []string{"first", "second"} {
		l.Launching("claim-"+name, now)
		l.Named("claim-"+name, name, "id-"+name)
		l.Cached(name, NodeStatus{ProviderID: "id-" + name, Managed: true, Registered: true, Initialized: name == "second"}, now)
	}
	l.Adopt(capacity.PodRef{UID: "new"}, c, now)
	if node, wait := l.Pin("new"); node != "second" {
		t.Errorf("the successor is pinned to %q (%s)", node, wait)
	}
	if held, up := l.Held("old-1"); len(held) != 1 || up != 0 {
		t.Errorf("of what is held for the other node's pods %v is left, %d of it up", held, up)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

func TestRoomForSuccessorsIsGivenBack(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	moving(l, c, now)
	l.Release("another")
	if held, _ := l.Held("old"); len(held) != 1 {
		t.Fatalf("held: %v", held)
	}
	l.Release("old")
	if diff := cmp.Diff([]string{"claim"}, l.Take().Cancel); diff != "" {
		t.Errorf("claims nobody needs (-want +got):\n%s", diff)
	}
	if !l.Empty() {
		t.Errorf("something is left:\n%s", l)
	}
}

// The node for the replacements is lost: nothing is planned again automatically; the caller sees that the reservations are missing.
func TestRoomForSuccessorsIsLost(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	moving(l, c, now)
	l.ClaimGone("claim", "no capacity", true, now)
	if held, _ := l.Held("old"); len(held) != 0 {
		t.Errorf("held: %v", held)
	}
	if e := l.Take(); e.Plan || len(e.Activate) > 0 {
		t.Errorf("effects: %+v", e)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// What is reserved for a move that has not begun is for nobody; when the move begins, it is for the owner's next pods.
func TestReserveAndBegin(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	l.Existing("node", NodeStatus{Managed: true, Initialized: true})
	two := []capacity.Placement{{Class: c, Owner: "rs", Node: "node"}, {Class: c, Owner: "rs", Node: "node"}}
	if !l.Reserve("1", two, []string{"old", "old"}, now.Add(time.Minute), now) {
		t.Fatal("nothing is reserved")
	}
	if l.Expects(c) || l.Adopt(capacity.PodRef{UID: "early"}, c, now) {
		t.Error("a pod takes what is reserved for a move that has not begun")
	}
	if held, up := l.Held("old"); held[Successor{"rs", "a"}] != 2 || up != 2 {
		t.Errorf("%v are held, %d of them up", held, up)
	}
	for _, f := range l.InFlight() {
		for _, s := range f.Slots {
			if s.Leaving != "old" {
				t.Errorf("a plan doesn't see for which move %+v is reserved", s)
			}
		}
	}
	l.Begin("old")
	if !l.Adopt(capacity.PodRef{UID: "next"}, c, now) {
		t.Error("a successor gets nothing")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// If one node can't take its pods any more, nothing is reserved.
func TestReserveAllOrNothing(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), ownedClass("a")
	l.Existing("node", NodeStatus{Managed: true, Initialized: true})
	if !l.Fence("gone") {
		t.Fatal("an empty node can't be cordoned")
	}
	both := []capacity.Placement{{Class: c, Owner: "rs", Node: "node"}, {Class: c, Owner: "rs", Node: "gone"}}
	if l.Reserve("1", both, []string{"old", "old"}, now.Add(time.Minute), now) {
		t.Error("half of a move is reserved")
	}
	if held, _ := l.Held("old"); len(held) > 0 || !l.Fence("node") {
		t.Errorf("%v is held", held)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
