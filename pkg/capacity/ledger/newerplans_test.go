package ledger

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func spreadClass() *capacity.Class {
	c := testClass("web", 100, 0)
	c.Pod = &corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}}}
	return c
}

func bySpread(string) (plugin, reason string) { return "PodTopologySpread", "" }

// onOneOfTwoNodes returns a ledger in which a and b are planned on the launched claims c1 and c2, one of which is an initialized node: n1 or n2. a is
// about to be tried there.
func onOneOfTwoNodes(up string, now time.Time) (l *Ledger, c *capacity.Class, a, b capacity.PodRef) {
	l, c = New(), spreadClass()
	a, b = capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	l.Launching("c1", now)
	l.Launching("c2", now)
	node := "n" + up[1:]
	l.Named(up, node, "")
	l.Cached(node, NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	l.Pin(a.UID)
	return l, c, a, b
}

// The pods that a plan counted on may have lost their nodes, and have newer plans. The pod that is refused for want of them waits for these.
func TestPodWaitsForPodsOfNewerPlans(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	l.Submit(a, c, now)
	l.Existing("n1", NodeStatus{Managed: true, Registered: true, Initialized: true})
	l.Commit("p1", []capacity.Placement{{Class: c, Pod: a, Node: "n1"}}, now)
	if node, _ := l.Pin(a.UID); node != "n1" {
		t.Fatalf("its node is %q", node)
	}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c2": b}, "c2")
	l.Launching("c2", now)
	if state, why := l.SubmitRefused(a, c, bySpread, now); state != Planned {
		t.Fatalf("after the filters have refused it the pod is %v: %s", state, why)
	}
	if l.HasRejected() {
		t.Error("the filters' refusal counts against the node")
	}
	l.Tick(now.Add(time.Second))
	if node, _ := l.Pin(a.UID); node != "" {
		t.Fatalf("it is tried on %s before the other pod is placed", node)
	}
	l.Named("c2", "n2", "")
	l.Cached("n2", NodeStatus{Managed: true}, now)
	if node, _ := l.Pin(a.UID); node != "n2" { // pods of a class are alike: the one that has waited longest goes first
		t.Fatalf("its node is %q", node)
	}
	if err := l.Assume(a.UID, "n2", false); err != nil {
		t.Fatal(err)
	}
	l.Settled(a.UID, "n2")
	l.Tick(now.Add(2 * time.Second))
	if node, _ := l.Pin(b.UID); node != "n1" {
		t.Fatalf("the node of the second is %q", node)
	}
	for waited := tryAgain; waited < 3*mostWait; waited *= 2 { // the other one's node is lost each time, and there is another
		now := now.Add(waited)
		l.Tick(now)
		claim := fmt.Sprint("d", waited)
		waiting(l, c, now, 0, map[string]capacity.PodRef{claim: {UID: types.UID(claim)}}, claim)
		l.Launching(claim, now)
		l.Pin(b.UID)
		if state, _ := l.SubmitRefused(b, c, bySpread, now); (state == Planned) != (waited <= mostWait) {
			t.Errorf("after %v it is %v:\n%s", waited, state, l)
		}
		l.ClaimGone(claim, "it failed", false, now)
	}
}

// The pods that a plan counted on may be without a plan at the moment. The refused pod waits for that plan, and not for ever: there may never be one.
func TestPodWaitsForPodsThatAreBeingPlanned(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	l.AddNode("c1", nil, nil, false, now)
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	l.Submit(a, c, now)
	l.Commit("p1", []capacity.Placement{{Class: c, Pod: a, Node: "c1"}}, now)
	l.Submit(b, c, now) // and nothing is planned for it
	l.Cached("n1", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	for waited := time.Duration(0); waited <= mostWait; waited += max(waited, tryAgain) {
		at := now.Add(waited)
		l.Tick(at.Add(-time.Second))
		if node, _ := l.Pin(a.UID); waited > 0 && node != "" {
			t.Fatalf("after %v it is tried again at once", waited)
		}
		l.Tick(at)
		if node, _ := l.Pin(a.UID); node != "n1" {
			t.Fatalf("after %v it is tried on %q:\n%s", waited, node, l)
		}
		if state, why := l.SubmitRefused(a, c, bySpread, at); state != Planned {
			t.Fatalf("after %v the pod is %v: %s", waited, state, why)
		}
	}
	now = now.Add(2 * mostWait)
	l.Tick(now)
	l.Pin(a.UID)
	if state, _ := l.SubmitRefused(a, c, bySpread, now); state == Planned {
		t.Errorf("it waits for ever:\n%s", l)
	}
}

// A pod that waits for others up to the end of its gate says nothing about the node that is reserved for it.
func TestNodesOfPodsThatWaitForOthersAreNotToBlame(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, a, _ := onOneOfTwoNodes("c1", now)
	l.SetPatience(Patience{Gate: 10 * time.Minute, Late: time.Hour})
	if state, why := l.SubmitRefused(a, c, bySpread, now); state != Planned {
		t.Fatalf("after a refusal the pod is %v: %s", state, why)
	}
	l.Tick(now.Add(10*time.Minute + time.Second))
	if !l.Refused(a.UID) {
		t.Fatalf("its gate hasn't ended:\n%s", l)
	}
	if got := l.TakeRejected(); len(got) > 0 {
		t.Errorf("the guard hears of %+v", got)
	}
}

// The older node never registers, and the gates of both pods end. The capacity on the other node, which is ready, is free for others, and its pod is
// planned for again.
func TestGateEndsBesideAnOlderNode(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, a, b := onOneOfTwoNodes("c2", now)
	if state, why := l.SubmitRefused(a, c, bySpread, now); state != Planned {
		t.Fatalf("after a refusal the pod is %v: %s", state, why)
	}
	l.Tick(now.Add(2 * tryAgain))
	if node, _ := l.Pin(a.UID); node != "n2" {
		t.Fatalf("a node that never comes keeps it from being tried again: %q", node)
	}
	l.SubmitRefused(a, c, bySpread, now.Add(2*tryAgain))
	for i := range 120 {
		l.Tick(now.Add(time.Duration(i) * time.Minute))
	}
	if l.Refused(a.UID) && l.Refused(b.UID) {
		t.Errorf("nothing plans for them:\n%s", l)
	}
}

// No other pod helps on a node that lacks the label of the spread.
func TestMissingLabelsAreNotWaitedFor(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, a, _ := onOneOfTwoNodes("c2", now)
	by := func(string) (string, string) {
		return "PodTopologySpread", podtopologyspread.ErrReasonNodeLabelNotMatch
	}
	if state, _ := l.SubmitRefused(a, c, by, now); state == Planned {
		t.Error("it waits")
	}
}

// While a pod of the class is being bound, it neither waits any more nor is it on its node for good. A pod that is refused at that moment waits, and is
// tried again.
func TestPodWaitsWhileOthersAreBeingBound(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	up := NodeStatus{Managed: true, Registered: true, Initialized: true}
	var placements []capacity.Placement
	for _, ref := range []capacity.PodRef{a, b, {UID: "c"}} {
		node := fmt.Sprint("n", ref.UID)
		l.Submit(ref, c, now)
		l.Existing(node, up)
		placements = append(placements, capacity.Placement{Class: c, Pod: ref, Node: node})
	}
	l.Commit("p", placements, now)
	for _, pl := range placements {
		l.Pin(pl.Pod.UID)
	}
	if state, why := l.SubmitRefused(a, c, bySpread, now); state != Planned && state != Open {
		t.Fatalf("the first is %v: %s", state, why)
	}
	if err := l.Assume("c", "nc", false); err != nil {
		t.Fatal(err)
	}
	if state, why := l.SubmitRefused(b, c, bySpread, now); state != Planned && state != Open {
		t.Fatalf("the second is %v: %s\n%s", state, why, l)
	}
	now = now.Add(time.Second)
	l.Tick(now)
	first, _ := l.Pin(a.UID)
	second, _ := l.Pin(b.UID)
	if first+second != "na" && first+second != "nb" { // b was refused after c had been assumed, and nothing has changed since
		t.Errorf("tried on %q and %q:\n%s", first, second, l)
	}
}

// When a pod has lost its node, those that come after it are refused until the next one of the same zone is placed. They try that one instead, and
// none of their nodes is given up.
func TestRefusedPodsTryTheOthersFirst(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	var placements []capacity.Placement
	for i := range 6 { // in the zones 0, 1 and 2 in turn
		ref, node := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}, fmt.Sprint("n", i)
		l.Submit(ref, c, now)
		l.Existing(node, NodeStatus{Managed: true, Registered: true, Initialized: true})
		placements = append(placements, capacity.Placement{Class: c, Pod: ref, Node: node, Group: 1})
	}
	l.Commit("p", placements, now)
	zones, lost, replanned := [3]int{}, "n2", 0
	for at := now; at.Sub(now) < 10*time.Second; at = at.Add(time.Second) {
		l.Tick(at)
		for _, pl := range placements {
			node, _ := l.Pin(pl.Pod.UID)
			if node == "" {
				continue
			}
			zone := int(node[1]-'0') % 3
			plugin := ""
			switch {
			case node == lost:
				plugin = "NodeResourcesFit"
			case zones[zone] > min(zones[0], zones[1], zones[2]):
				plugin = "PodTopologySpread"
			}
			if plugin == "" {
				if err := l.Assume(pl.Pod.UID, node, false); err != nil {
					t.Fatal(err)
				}
				l.Settled(pl.Pod.UID, node)
				zones[zone]++
			} else if state, _ := l.SubmitRefused(pl.Pod, c, func(string) (string, string) { return plugin, "" }, at); state == Queued {
				replanned++
			}
		}
	}
	if replanned != 1 || zones != [3]int{2, 2, 1} {
		t.Errorf("%d pods need other nodes, and the zones have %v:\n%s", replanned, zones, l)
	}
}
