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
	for name, gone := range map[string]bool{"it is placed": false, "its node is lost": true} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l, c := New(), testClass("web", 100, 0)
			c.Pod = &corev1.Pod{Spec: corev1.PodSpec{TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}}}
			a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
			waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a}, "c1")
			l.Launching("c1", now)
			l.Submit(b, c, now)
			l.Existing("n2", NodeStatus{Managed: true, Registered: true, Initialized: true})
			l.Commit("p2", []capacity.Placement{{Class: c, Pod: b, Node: "n2"}}, now)
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
