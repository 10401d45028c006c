package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

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
		changed(l, now)
	}
}
