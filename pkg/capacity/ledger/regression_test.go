package ledger

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// The pod that a node was planned for is deleted while the plan is made. The node is never launched, so the next plan must not find it in
// flight.
func TestNodeWhoseDemandWentIsForgottenAtCommit(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	a := testClass("a", 100, 0)
	l.Submit(capacity.PodRef{UID: "p"}, a, now)
	l.Gone("p") // deleted between the view and the commit
	l.AddNode("c", &capacity.Node{}, nil, false, now)
	l.Commit("1", []capacity.Placement{{Class: a, Pod: capacity.PodRef{UID: "p"}, Node: "c"}}, now)
	if l.Launching("c", now) {
		t.Error("a node that nobody needs is launched")
	}
	if got := l.InFlight(); len(got) != 0 {
		t.Errorf("still in flight, for others to wait for: %+v", got)
	}
}

// A claim ends while a plan is made that places pods on its node. These and the rest of their groups get no reservation, or they would
// wait for a node that never exists.
func TestPlanOnAClaimThatHasEndedIsNotBooked(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	a := testClass("a", 100, 0)
	l.AddNode("c", &capacity.Node{}, nil, true, now)
	for _, uid := range []types.UID{"alone", "joined", "other", "fine"} {
		l.Submit(capacity.PodRef{UID: uid}, a, now)
	}
	l.Take()
	l.ClaimGone("gone", "deleted", true, now)
	l.Commit("1", []capacity.Placement{
		{Class: a, Pod: capacity.PodRef{UID: "alone"}, Node: "gone"},
		{Class: a, Pod: capacity.PodRef{UID: "joined"}, Node: "gone", Group: 1},
		{Class: a, Pod: capacity.PodRef{UID: "other"}, Node: "c", Group: 1},
		{Class: a, Pod: capacity.PodRef{UID: "fine"}, Node: "c", Group: 2},
	}, now)
	got := map[types.UID]State{}
	for uid, p := range l.pods {
		got[uid] = p.state
	}
	if diff := cmp.Diff(map[types.UID]State{"alone": Queued, "joined": Queued, "other": Queued, "fine": Planned}, got); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if !l.Take().Plan {
		t.Error("nobody is told to plan for those that are queued")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// One node of a group is there, the other one fails: the whole group is planned again, and no pod of it is opened alone.
func TestGroupIsPlannedAnewWhenItsLastNodeFails(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	a, b := testClass("a", 100, 0), testClass("b", 100, 0)
	for _, claim := range []string{"c1", "c2"} {
		l.AddNode(claim, nil, nil, false, now)
	}
	l.Submit(capacity.PodRef{UID: "p1"}, a, now)
	l.Submit(capacity.PodRef{UID: "p2"}, b, now)
	l.Commit("1", []capacity.Placement{
		{Class: a, Pod: capacity.PodRef{UID: "p1"}, Node: "c1", Group: 1},
		{Class: b, Pod: capacity.PodRef{UID: "p2"}, Node: "c2", Group: 1},
	}, now)
	for _, claim := range []string{"c1", "c2"} {
		l.Launching(claim, now)
		l.Named(claim, "n-"+claim, "")
	}
	l.Cached("n-c1", NodeStatus{Managed: true, Registered: true}, now)
	l.ClaimGone("c2", "the instance died", true, now)
	if err := check(l); err != nil {
		t.Error(err)
	}
	for _, uid := range []capacity.PodRef{{UID: "p1"}, {UID: "p2"}} {
		if got := l.pods[uid.UID].state; got != Queued {
			t.Errorf("pod %s is %s, want it planned for again", uid.UID, got)
		}
	}
}

// A Fence that was refused leaves nothing behind that a later plan would wait for.
func TestRefusedFenceLeavesNothing(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	_ = l.Assume("other", "n", false)
	if l.Fence("n") {
		t.Fatal("fenced a node to which a pod is on its way")
	}
	if !l.Empty() {
		t.Errorf("a node is remembered for nothing:\n%s", l)
	}
	a := testClass("a", 100, 0)
	l.Submit(capacity.PodRef{UID: "p"}, a, now)
	l.Existing("n", NodeStatus{})
	l.Commit("1", []capacity.Placement{{Class: a, Pod: capacity.PodRef{UID: "p"}, Node: "n"}}, now)
	if closed, why := l.Gate("p"); closed {
		t.Errorf("the pod waits: %s", why)
	}
	l.Pin("p")
	_ = l.Assume("p", "n", false)
	l.Settled("p", "n")
	if !l.Empty() {
		t.Errorf("a node is remembered after its last promise was kept:\n%s", l)
	}
}

// Instances die as soon as they run (an encryption key that can't be used, a broken image). Their pods were bound early and are recreated
// each time. Each round comes later than the last.
func TestNodesThatTakePodsAndNeverComeBackOff(t *testing.T) {
	l, now := New(), time.Unix(0, 0)
	a := testClass("a", 100, 0)
	var waits []time.Duration
	for i := range 5 {
		pod := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}
		start := now
		for st, why := l.Submit(pod, a, now); st == Refused; st, why = l.Submit(pod, a, now) {
			if !strings.HasSuffix(why, "the next one is launched later: the instance is gone") {
				t.Fatalf("the pod isn't told what became of the last node: %q", why)
			}
			now = now.Add(100 * time.Millisecond)
		}
		waits = append(waits, now.Sub(start))
		claim, name := fmt.Sprint("c", i), fmt.Sprint("n", i)
		l.AddNode(claim, nil, nil, false, now)
		l.Commit(claim, []capacity.Placement{{Class: a, Pod: pod, Node: claim}}, now)
		l.Launching(claim, now)
		l.Named(claim, name, "")
		l.Cached(name, NodeStatus{Managed: true}, now)
		l.Pin(pod.UID)
		_ = l.Assume(pod.UID, name, false)
		l.Settled(pod.UID, name)
		now = now.Add(10 * time.Second)
		l.Tick(now)
		if i == 3 { // this one registers
			l.Cached(name, NodeStatus{Managed: true, Registered: true}, now)
		}
		l.ClaimGone(claim, "the instance is gone", false, now)
	}
	want := []time.Duration{0, 0, time.Second, 2 * time.Second, 0}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Errorf("waits before each round (-want +got):\n%s", diff)
	}
	l.Tick(now.Add(time.Hour))
	if len(l.classes) != 0 {
		t.Error("the class is remembered for ever")
	}
}

// What is planned after a restart has a higher order than every reservation on record, including those that are no longer used: after the
// next restart, too, the ledger has to find out which of two reservations for a pod is the later one.
func TestOrdersGoOnAfterARestart(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("web", 100, 0)
	l.Restore(nil, 50, now)
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
	if got := l.Slots("c1"); len(got) != 1 || got[0].Order <= 50 {
		t.Errorf("planned: %v, want an order above 50", got)
	}
}
