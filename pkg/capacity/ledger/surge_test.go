package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// deployed returns the class of pods of a ReplicaSet of Deployment web.
func deployed(revision string, cpu int64) *capacity.Class {
	c := testClass(revision, cpu, 0)
	c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Labels: map[string]string{"pod-template-hash": revision},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-" + revision, UID: types.UID(revision), Controller: new(true)}}}}
	return c
}

// webReserved returns a ledger with a place on node "new" for a pod of Deployment web on node "old".
func webReserved(t *testing.T) (*Ledger, time.Time) {
	t.Helper()
	now := time.Unix(0, 0)
	l := New()
	l.Existing("new", NodeStatus{Managed: true, Initialized: true})
	if !l.Reserve("1", []capacity.Placement{{Class: deployed("one", 100), Owner: "one", Node: "new"}}, []string{"old"}, now.Add(time.Minute), now) {
		t.Fatal("nothing is reserved")
	}
	return l, now
}

// The pod of a new ReplicaSet gets what was reserved for the pod that it replaces, and nothing before the surge.
func TestSurge(t *testing.T) {
	l, now := webReserved(t)
	next := deployed("two", 100)
	if l.Expects(next) || l.Holds("two", "d/web") {
		t.Error("a pod of another ReplicaSet is expected before the surge")
	}
	l.Surge("old", "one", "d/web")
	if !l.Expects(next) || !l.Holds("two", "d/web") {
		t.Error("no pod of another ReplicaSet is expected")
	}
	if err := check(l); err != nil {
		t.Fatal(err)
	}
	for _, other := range []*capacity.Class{deployed("three", 200), ownedClass("a")} {
		if l.Adopt(capacity.PodRef{UID: "other"}, other, now) {
			t.Errorf("a pod of class %s got the place", other.Key)
		}
	}
	if !l.Adopt(capacity.PodRef{UID: "next"}, next, now) {
		t.Fatal("the pod of the new ReplicaSet gets nothing")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
	if node, wait := l.Pin("next"); node != "new" {
		t.Errorf("it is pinned to %q (%s)", node, wait)
	}
	if got := l.Adopted()["two"]; len(got) != 1 {
		t.Errorf("counted for its own ReplicaSet: %v", got)
	}
	if held, _ := l.Held("old"); len(held) != 0 || l.Holds("two", "d/web") {
		t.Errorf("still held: %v", held)
	}
	if l.Adopt(capacity.PodRef{UID: "second"}, next, now) {
		t.Error("a second pod got a place that isn't there")
	}
}

// A pod that its scheduler submits itself gets the place as well, and so does one of the same ReplicaSet.
func TestSurgeOfSubmittedPods(t *testing.T) {
	for _, revision := range []string{"one", "two"} {
		l, now := webReserved(t)
		l.Surge("old", "one", "d/web")
		if state, why := l.Submit(capacity.PodRef{UID: "next"}, deployed(revision, 100), now); state != Open {
			t.Errorf("%s: it is %s (%s)", revision, state, why)
		}
		if err := check(l); err != nil {
			t.Error(err)
		}
	}
}

// What no pod has taken is released with the move, and ends by itself.
func TestSurgeWithoutPods(t *testing.T) {
	for name, end := range map[string]func(l *Ledger, now time.Time){
		"released": func(l *Ledger, _ time.Time) { l.Release("old") },
		"expired":  func(l *Ledger, now time.Time) { l.Tick(now.Add(time.Hour)) },
	} {
		l, now := webReserved(t)
		l.Surge("old", "one", "d/web")
		end(l, now)
		if l.Holds("one", "d/web") || l.Expects(deployed("two", 100)) {
			t.Errorf("%s: something is left:\n%s", name, l)
		}
		if err := check(l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was reserved for the successor of a pod that had changed while it ran is for the pod that its controller really creates.
func TestSuccessorOfAnotherClass(t *testing.T) {
	l, now := webReserved(t)
	next := deployed("one", 50) // it was resized, and got a label
	next.Key = "unchanged"
	if l.Expects(next) {
		t.Error("the pod is expected before the drain has begun")
	}
	l.Begin("old")
	for name, other := range map[string]*capacity.Class{"of another owner": ownedClass("a"), "too large": deployed("one", 200)} {
		other.Key = "other"
		if l.Adopt(capacity.PodRef{UID: "other"}, other, now) {
			t.Errorf("a pod %s got the place", name)
		}
	}
	if !l.Expects(next) || !l.Adopt(capacity.PodRef{UID: "next"}, next, now) {
		t.Fatal("the pod gets nothing")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
	if node, wait := l.Pin("next"); node != "new" {
		t.Errorf("it is pinned to %q (%s)", node, wait)
	}
	if held, _ := l.Held("old"); len(held) != 0 || l.Holds("one", "") {
		t.Errorf("still held: %v", held)
	}
}
