package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A spread allows a pod on its node only once a pod of an older plan is on its own, which still boots. The filters refuse it until then: it keeps
// its reservation, its machine isn't to blame, and it is tried again when the other one has been placed.
func TestPodWaitsForPodsOfOlderPlans(t *testing.T) {
	for name, tc := range map[string]struct {
		gone  bool
		group int // as the planner sets it for each pod that depends on others
	}{"it is placed": {false, 0}, "its node is lost": {true, 0}, "it is placed, and each was planned as a group": {false, 1}, "its node is lost, and each was planned as a group": {true, 1}} {
		t.Run(name, func(t *testing.T) {
			gone := tc.gone
			now := time.Unix(0, 0)
			l, c := New(), testClass("web", 100, 0)
			c.Pod = &corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}}}
			a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
			waiting(l, c, now, tc.group, map[string]capacity.PodRef{"c1": a}, "c1")
			l.Launching("c1", now)
			l.Submit(b, c, now)
			l.Existing("n2", NodeStatus{Managed: true, Registered: true, Initialized: true})
			l.Commit("p2", []capacity.Placement{{Class: c, Pod: b, Node: "n2", Group: tc.group}}, now)
			activated := func(want ...capacity.PodRef) {
				t.Helper()
				if diff := cmp.Diff(want, l.Take().Activate); diff != "" {
					t.Fatalf("activated (-want +got):\n%s\n%s", diff, l)
				}
			}
			activated(a) // pods of a class are alike: the one that has waited longest goes first
			if node, _ := l.Pin(a.UID); node != "n2" {
				t.Fatalf("its node is %q", node)
			}
			if state, why := l.Submit(a, c, now); state != Planned || why != "the other pods of its plan are placed first" {
				t.Fatalf("after the filters have refused it the pod is %v: %s", state, why)
			}
			if l.HasRejected() {
				t.Error("the filters' refusal counts against the node")
			}
			l.Tick(now.Add(time.Second))
			activated()
			if gone {
				l.ClaimGone("c1", "it failed", false, now)
			} else {
				l.Named("c1", "n1", "")
				l.Cached("n1", NodeStatus{Managed: true}, now)
				activated(a)
				if node, _ := l.Pin(a.UID); node != "n1" {
					t.Fatalf("its node is %q", node)
				}
				if err := l.Assume(a.UID, "n1", false); err != nil {
					t.Fatal(err)
				}
				a = b
			}
			l.Take()
			l.Tick(now.Add(2 * time.Second))
			activated(a)
			l.Pin(a.UID)
			if state, _ := l.Submit(a, c, now); state == Planned {
				t.Errorf("after a refusal that nothing excuses the pod keeps its reservation:\n%s", l)
			}
		})
	}
}

func spreadClass() *capacity.Class {
	c := testClass("web", 100, 0)
	c.Pod = &corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}}}
	return c
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
	l, c := New(), spreadClass()
	l.SetPatience(Patience{Gate: 10 * time.Minute, Late: time.Hour})
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	for _, claim := range []string{"c1", "c2"} {
		l.Launching(claim, now)
	}
	l.Named("c1", "n1", "")
	l.Cached("n1", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	l.Pin(a.UID)
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

// A node that never suits, in the wrong zone, say, is given up however many other pods of its class come and are placed.
func TestUselessSlotIsGivenUp(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	up := NodeStatus{Managed: true, Registered: true, Initialized: true}
	var live []capacity.PodRef
	gaveUp := false
	for i := range 400 { // a pod each 5 s, whose node boots for 20 s; n0 is always refused
		r := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}
		live = append(live, r)
		l.Submit(r, c, now)
		if q := l.QueuedPods(); len(q) > 0 {
			claim := fmt.Sprint("c", i)
			l.AddNode(claim, nil, nil, false, now)
			l.Launching(claim, now)
			l.Named(claim, fmt.Sprint("n", i), "")
			l.Commit(claim, []capacity.Placement{{Class: c, Pod: q[0].Ref, Node: claim}}, now)
		}
		if i >= 4 {
			l.Cached(fmt.Sprint("n", i-4), up, now)
		}
		for range 5 {
			now = now.Add(time.Second)
			l.Tick(now)
			live = slices.DeleteFunc(live, func(ref capacity.PodRef) bool {
				node, _ := l.Pin(ref.UID)
				if node == "n0" {
					state, _ := l.SubmitRefused(ref, c, bySpread, now)
					gaveUp = gaveUp || state == Queued || state == Refused
				}
				if node == "" || node == "n0" || l.Assume(ref.UID, node, false) != nil {
					return false
				}
				l.Settled(ref.UID, node)
				return true
			})
		}
	}
	if !gaveUp {
		t.Errorf("n0 is kept for ever:\n%s", l)
	}
}

// The pods that are waited for never come. In the end, the one that waits is planned for again.
func TestWaitForOthersEndsInAPlan(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	l.Launching("c1", now)
	l.Launching("c2", now)
	l.Named("c1", "n1", "")
	l.Cached("n1", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	l.Pin(a.UID)
	l.SubmitRefused(a, c, bySpread, now)
	for i := range 120 {
		l.Tick(now.Add(time.Duration(i) * time.Minute))
	}
	if l.Refused(a.UID) {
		t.Errorf("nothing plans for it:\n%s", l)
	}
}

// Pods of two zones wait for those of a third, whose nodes come one by one. The number of attempts grows with the pods, not with their square.
func TestPodsThatWaitAreNotAllTriedEachTime(t *testing.T) {
	const n = 300
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	var placements []capacity.Placement
	for i := range 3 * n { // the nodes of zones 0 and 1 are there, and those of zone 2 come later
		ref, claim := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}, fmt.Sprint("c", i)
		l.Submit(ref, c, now)
		l.AddNode(claim, nil, nil, false, now)
		l.Launching(claim, now)
		l.Named(claim, fmt.Sprint("n", i), "")
		placements = append(placements, capacity.Placement{Class: c, Pod: ref, Node: claim})
	}
	l.Commit("p", placements, now)
	zoneOf := func(node string) int {
		i, err := strconv.Atoi(node[1:])
		if err != nil {
			t.Fatal(err)
		}
		return i / n
	}
	zones, tried, left := [3]int{}, 0, len(placements)
	for step := 0; step < 3*n && left > 0; step++ {
		now = now.Add(time.Second)
		up := func(i int) {
			labels := map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i / n)}
			l.Cached(fmt.Sprint("n", i), NodeStatus{Managed: true, Registered: true, Initialized: true, Labels: labels}, now)
		}
		for i := 0; i < 2*n && step == 0; i++ {
			up(i)
		}
		for i := 3 * step; i < min(3*step+3, n); i++ {
			up(2*n + i)
		}
		l.Tick(now)
		for i := range placements {
			ref := placements[i].Pod
			node, _ := l.Pin(ref.UID)
			if node == "" {
				continue
			}
			tried++
			if zone := zoneOf(node); zones[zone] > min(zones[0], zones[1], zones[2]) {
				l.SubmitRefused(ref, c, bySpread, now)
			} else if err := l.Assume(ref.UID, node, false); err == nil {
				l.Settled(ref.UID, node)
				zones[zone]++
				left--
			}
		}
	}
	if left > 0 || tried > 3*n*(triesPerPod+3) {
		t.Errorf("%d attempts for %d pods, of which %d are left: %v", tried, 3*n, left, zones)
	}
}

// Where more pods wait than are tried at once, each gets its turn, though others of the class are placed all the time, and none gives up because
// the rest has not been tried yet.
func TestAllThatWaitGetTheirTurn(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	const n = 3 * triesPerPod
	var refs []capacity.PodRef
	var placements []capacity.Placement
	for i := range n {
		ref, node := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}, fmt.Sprint("n", i)
		l.Submit(ref, c, now)
		l.Existing(node, NodeStatus{Managed: true, Registered: true, Initialized: true})
		refs, placements = append(refs, ref), append(placements, capacity.Placement{Class: c, Pod: ref, Node: node})
	}
	l.Commit("p", placements, now)
	tried := map[string]int{}
	for step := range 20 {
		now = now.Add(time.Second)
		other := fmt.Sprint("other", step) // one that is placed
		waiting(l, c, now, 0, map[string]capacity.PodRef{other: {UID: types.UID(other)}}, other)
		l.Launching(other, now)
		l.Named(other, other, "")
		l.Cached(other, NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
		l.Tick(now)
		refs = append(refs, capacity.PodRef{UID: types.UID(other)})
		refs = slices.DeleteFunc(refs, func(ref capacity.PodRef) bool {
			node, _ := l.Pin(ref.UID)
			if len(node) > 5 {
				if err := l.Assume(ref.UID, node, false); err != nil {
					t.Fatal(err)
				}
				l.Bound(ref.UID, node, now) // the informer may be faster than the end of the binding cycle
				l.Settled(ref.UID, node)
				return true
			}
			if node != "" {
				tried[node]++
				if state, why := l.SubmitRefused(ref, c, bySpread, now); state == Queued || state == Refused {
					t.Fatalf("in step %d %s on %s is %v: %s", step, ref.UID, node, state, why)
				}
			}
			return false
		})
	}
	for i := range n {
		if node := fmt.Sprint("n", i); tried[node] < 3 {
			t.Errorf("%s was tried %d times: %v", node, tried[node], tried)
		}
	}
}

// The older node never registers, and the gates of both pods end. The capacity on the other node, which is ready, is free for others, and its pod is
// planned for again.
func TestGateEndsBesideAnOlderNode(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	l.Launching("c1", now)
	l.Launching("c2", now)
	l.Named("c2", "n2", "")
	l.Cached("n2", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	l.Pin(a.UID)
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
	l, c := New(), spreadClass()
	a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a, "c2": b}, "c1", "c2")
	l.Launching("c2", now)
	l.Named("c2", "n2", "")
	l.Cached("n2", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	l.Pin(a.UID)
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

func bySpread(string) (plugin, reason string) { return "PodTopologySpread", "" }

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

// Only filters that look at other pods excuse a refusal: for want of CPU, say, the pod is planned again at once, and its node is looked at.
func TestOnlyOtherPodsAreWaitedFor(t *testing.T) {
	for plugin, want := range map[string]State{"PodTopologySpread": Planned, "InterPodAffinity": Planned, "NodeResourcesFit": Queued, "": Planned} {
		now := time.Unix(0, 0)
		l, c := New(), spreadClass()
		a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
		waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a}, "c1")
		l.Launching("c1", now)
		l.Submit(b, c, now)
		l.Existing("n2", NodeStatus{Managed: true, Registered: true, Initialized: true})
		l.Commit("p2", []capacity.Placement{{Class: c, Pod: b, Node: "n2"}}, now)
		l.Pin(a.UID)
		if state, why := l.SubmitRefused(a, c, func(string) (string, string) { return plugin, "" }, now); (state == Planned) != (want == Planned) {
			t.Errorf("refused by %q the pod is %v: %s", plugin, state, why)
		}
	}
}

// If another pod of the class waits in the place of the one that was refused, that one is tried on the node that is left.
func TestRefusedPodTakesWhatIsLeft(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	a, b, d := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}, capacity.PodRef{UID: "d"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a}, "c1")
	l.Launching("c1", now)
	for _, ref := range []capacity.PodRef{b, d} {
		l.Submit(ref, c, now)
	}
	for _, node := range []string{"n2", "n3"} {
		l.Existing(node, NodeStatus{Managed: true, Registered: true, Initialized: true})
	}
	l.Commit("p2", []capacity.Placement{{Class: c, Pod: b, Node: "n2"}, {Class: c, Pod: d, Node: "n3"}}, now)
	first, _ := l.Pin(a.UID)
	l.Take()
	state, why := l.Submit(a, c, now)
	if state != Open {
		t.Fatalf("the pod is %v: %s\n%s", state, why, l)
	}
	activated := false
	for _, ref := range l.Take().Activate {
		activated = activated || ref == a
	}
	if !activated {
		t.Errorf("nobody tries the pod again:\n%s", l)
	}
	if second, _ := l.Pin(a.UID); second == first || second == "" {
		t.Errorf("after %s it is tried on %q", first, second)
	}
}

// A pod whose capacity is bought for its ProvisioningRequest evicts nobody meanwhile, and is tried again only to hear of something new.
func TestEarlyPodsEvictNobody(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, a := New(), testClass("job", 100, 0), capacity.PodRef{UID: "a"}
	l.Submit(a, c, now)
	for i, want := range []int{1, 0, 1} {
		l.Take()
		why := "the request has no capacity yet"
		if i == 2 {
			why = "the request has failed"
		}
		l.PostponeEarly(a.UID, why, now.Add(30*time.Second), now)
		if got := len(l.Take().Activate); got != want {
			t.Errorf("time %d: activated %d times, want %d", i, got, want)
		}
		if !l.PlannedSoon(a.UID, now) {
			t.Errorf("time %d: other pods may be evicted for it", i)
		}
		l.Submit(a, c, now) // it hears
		now = now.Add(time.Minute)
		l.Reopen(now)
	}
}
