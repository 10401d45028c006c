package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// waiting plans pods of a class on claims, in that order.
func waiting(l *Ledger, c *capacity.Class, now time.Time, group int, onto map[string]capacity.PodRef, order ...string) {
	var pl []capacity.Placement
	for _, claim := range order {
		ref := onto[claim]
		l.Submit(ref, c, now)
		l.AddNode(claim, nil, nil, false, now)
		pl = append(pl, capacity.Placement{Class: c, Pod: ref, Node: claim, Group: group})
	}
	l.Commit("p", pl, now)
	l.Take()
}

// A pod that waits for an instance takes capacity that has become free; the launch that it no longer needs is cancelled.
func TestReassignFreesTheClaimThatWasNotLaunched(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("gpu", 100, 0)
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	if !l.Launching("c2", now) {
		t.Fatal("c2 is not wanted")
	}
	movable := l.Releasable(true)
	if len(movable) != 2 || !l.Waits(true) {
		t.Fatalf("movable %v", movable)
	}
	l.Existing("old", NodeStatus{})
	l.Reassign([]capacity.Placement{{Class: c, Pod: a, Node: "old"}}, true)
	got := l.Take()
	if diff := cmp.Diff(Effects{Activate: []capacity.PodRef{a}, Cancel: []string{"c1"}}, got); diff != "" {
		t.Errorf("effects (-want +got):\n%s", diff)
	}
	if node, wait := l.Pin("a"); node != "old" || wait != "" {
		t.Errorf("a goes to %q, waits for %q", node, wait)
	}
	if closed, _ := l.Gate("b"); !closed {
		t.Error("b was let go, too")
	}
	if l.Launching("c1", now) {
		t.Error("c1 is launched for nobody")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// Pods that start together are not separated, and pods that can be bound already need nothing else.
func TestReassignLeavesGroupsAndReadyRoomAlone(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, other := New(), testClass("spread", 100, 0), testClass("web", 100, 0)
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 1, map[string]capacity.PodRef{"c1": a}, "c1")
	waiting(l, other, now, 0, map[string]capacity.PodRef{"c2": b}, "c2")
	l.Launching("c2", now)
	l.Named("c2", "n2", "")
	l.Cached("n2", NodeStatus{Managed: true}, now)
	l.Take()
	if got := l.Releasable(true); len(got) != 0 || l.Waits(true) {
		t.Errorf("movable %v", got)
	}
	l.Existing("old", NodeStatus{})
	l.Reassign([]capacity.Placement{{Class: c, Pod: a, Node: "old"}, {Class: other, Pod: b, Node: "old"}}, true)
	if got := l.Take(); !got.Empty() {
		t.Errorf("effects %+v", got)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// Capacity on a node that is about to be up is no reason to drop the reservation on a launched instance: that would stay unused.
func TestReassignLeavesLaunchedMachinesAlone(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("bare", 100, 0)
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	l.Launching("c2", now)
	if got := l.Releasable(false); len(got) != 1 {
		t.Errorf("movable %v, want as many as wait for machines that were not launched", got)
	}
	l.Launching("c1", now)
	if got := l.Releasable(false); len(got) != 0 || l.Waits(false) {
		t.Errorf("movable %v, want none", got)
	}
	l.Existing("old", NodeStatus{})
	l.Reassign([]capacity.Placement{{Class: c, Pod: a, Node: "old"}}, false)
	if got := l.Take(); !got.Empty() {
		t.Errorf("effects %+v", got)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
