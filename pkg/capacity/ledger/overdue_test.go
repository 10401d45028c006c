package ledger

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// opened returns a ledger with one pod that was opened for its node, which is initialized.
func opened(t *testing.T, class *capacity.Class, now time.Time) *Ledger {
	t.Helper()
	l, ref := New(), capacity.PodRef{UID: "p"}
	l.SetPatience(Patience{Gate: 10 * time.Minute, Late: time.Minute})
	l.Submit(ref, class, now)
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Commit("plan", []capacity.Placement{{Class: class, Pod: ref, Node: "claim"}}, now)
	l.Launching("claim", now)
	l.Named("claim", "node", "")
	l.Cached("node", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	if st := l.pods[ref.UID].state; st != Open {
		t.Fatalf("the pod is %v", st)
	}
	l.Take()
	return l
}

func (l *Ledger) tickTo(from, to time.Time) {
	for now := from; !now.After(to); now = now.Add(time.Second) {
		l.Tick(now)
	}
}

// A pod was opened, and its cycles end before any PostFilter: its capacity must not stay reserved for ever, or the instance could never
// be ended.
func TestRoomOfAPodThatIsNeverBoundIsGivenUp(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	for name, pinned := range map[string]bool{"had a cycle": true, "never had one": false} {
		t.Run(name, func(t *testing.T) {
			l := opened(t, testClass("a", 100, 0), start)
			if pinned {
				if node, why := l.Pin("p"); node != "node" {
					t.Fatal(node, why)
				}
			}
			l.tickTo(start, start.Add(10*time.Minute))
			if l.Fence("node") {
				t.Fatal("its room was given up too early")
			}
			end := start.Add(10*time.Minute + time.Second)
			l.Tick(end)
			out := l.Take()
			if len(out.Words) != 1 || len(out.Activate) != 1 {
				t.Errorf("told: %v, activated: %v", out.Words, out.Activate)
			}
			if !l.Fence("node") {
				t.Error("the machine can't be ended")
			}
			l.Unfence("node")
			// Others may use the capacity at once. The pod itself isn't planned for again for as long as it had its slot.
			l.tickTo(end, end.Add(9*time.Minute))
			if n := len(l.QueuedPods(l.Queue())); n > 0 {
				t.Error("the pod is planned for again at once")
			}
			l.tickTo(end, end.Add(11*time.Minute))
			if n := len(l.QueuedPods(l.Queue())); n != 1 {
				t.Error("the pod is never planned for again")
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}

// A cycle that got as far as Reserve has shown that the reservation is good, however often it is refused then: the gang isn't complete yet.
func TestRoomIsKeptUntilTheGangIsComplete(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	member := testClass("a", 100, 0)
	member.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{objects.LabelPodGroup: "gang"}}}
	l := opened(t, member, start)
	now := start
	for range 5 {
		l.tickTo(now, now.Add(9*time.Minute))
		now = now.Add(9 * time.Minute)
		if node, why := l.Pin("p"); node != "node" {
			t.Fatal(node, why)
		}
		if why := l.Assume("p", "node", false); why != nil {
			t.Fatal(why)
		}
		l.Unassume("p", "node", now)
	}
	if st := l.pods[types.UID("p")].state; st != Open {
		t.Errorf("the pod is %v", st)
	}
}

// The time limit of another scheduler begins when the node exists, however long that took.
func TestOtherSchedulersHaveTheirTimeFromTheNodeOn(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	l, c, ref := New(), testClass("a~", 100, 0), capacity.PodRef{UID: "p"}
	c.ByOthers, c.Bind = true, capacity.BindRegistered
	l.Submit(ref, c, start)
	l.AddNode("claim", &capacity.Node{}, nil, false, start)
	l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "claim"}}, start)
	l.Launching("claim", start)
	l.Named("claim", "node", "id")
	came := start.Add(othersDeadline + time.Minute)
	l.Cached("node", NodeStatus{Managed: true, Registered: true, ProviderID: "id"}, came)
	l.tickTo(came, came.Add(othersDeadline))
	if p := l.pods["p"]; p.state != Open || p.failed > 0 {
		t.Fatalf("before its time is over the pod is %s, with %d failures", p.state, p.failed)
	}
	l.Tick(came.Add(othersDeadline + time.Second))
	if p := l.pods["p"]; p.state != Queued || p.failed != 1 {
		t.Errorf("when its time is over the pod is %s, with %d failures, want it queued with one", p.state, p.failed)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
