package moves

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// podOf returns a pod of a ReplicaSet on a node.
func podOf(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: "uid", OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: new(true)}}},
		Spec: corev1.PodSpec{SchedulerName: "s", NodeName: node}}
}

// two returns Moves with a move of a pod of node a to node c, and one of a pod of node b to node d.
func two(t *testing.T) (*Moves, map[string]map[string][]*corev1.Pod) {
	t.Helper()
	return twoBy(t, clocktesting.NewFakeClock(time.Unix(1000, 0)))
}

func twoBy(t *testing.T, clock *clocktesting.FakeClock) (*Moves, map[string]map[string][]*corev1.Pod) {
	t.Helper()
	r := reservations.New(clock)
	classes := pending.NewClasses(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	m := New(r, classes)
	now := map[string]map[string][]*corev1.Pod{}
	for from, to := range map[string]string{"a": "c", "b": "d"} {
		pod := podOf("p-"+from, from)
		_, class, err := classes.Successor(pod)
		if err != nil {
			t.Fatal(err)
		}
		r.Fence(from)
		r.Step(func(l *ledger.Ledger, at time.Time) {
			l.Existing(to, ledger.NodeStatus{Managed: true, Initialized: true})
			if !l.Reserve(from, []capacity.Placement{{Class: class, Owner: "rs", Node: to}}, []string{from}, at.Add(Hold), at) {
				t.Fatal("nothing is reserved")
			}
		})
		m.Reserved(from, consolidation.Move{Nodes: []string{from}, Reason: consolidation.Underutilized}, map[string]bool{to: true})
		now[from] = map[string][]*corev1.Pod{from: {pod}}
	}
	return m, now
}

// Only the moves whose nodes or capacity a plan uses are given up for it.
func TestGiveUp(t *testing.T) {
	for _, tt := range []struct {
		name, on, claim string
		want            string // the moves that are left
	}{
		{"where capacity is reserved", "c", "", "b"},
		{"on a node that would be emptied", "b", "", "a"},
		{"elsewhere", "e", "", "ab"},
		{"on a node known by its claim", "e", "d", "a"},
	} {
		m, now := two(t)
		plan := &capacity.Plan{Placements: []capacity.Placement{{Node: tt.on}}}
		if !m.GiveUp(plan, func(string) string { return tt.claim }, m.Yielding()) {
			t.Errorf("%s: the plan can't be carried out", tt.name)
		}
		for _, key := range []string{"a", "b"} {
			ready, err := m.Ready(key, now[key])
			if left := strings.Contains(tt.want, key); ready != left || left != (err == nil) {
				t.Errorf("%s: move %s is ready: %v (%v)", tt.name, key, ready, err)
			}
		}
	}
}

// A plan that counted on a move's capacity can't be carried out once the move has begun.
func TestGiveUpComesTooLate(t *testing.T) {
	m, now := two(t)
	yields := m.Yielding()
	if err := m.Begin("a", now["a"]); err != nil {
		t.Fatal(err)
	}
	both := &capacity.Plan{Placements: []capacity.Placement{{Node: "c"}, {Node: "d"}}}
	if m.GiveUp(both, func(string) string { return "" }, yields) {
		t.Error("the plan uses capacity of a move that has begun")
	}
	if ready, err := m.Ready("b", now["b"]); !ready || err != nil {
		t.Errorf("the other move was given up for it: %v, %v", ready, err)
	}
	if len(m.Yielding()) != 1 {
		t.Errorf("%v yield, want b", m.Yielding())
	}
}

// A move is paid once, when it begins.
func TestUnpaid(t *testing.T) {
	m, now := two(t)
	for range 2 {
		if err := m.Begin("a", now["a"]); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.TakeUnpaid()); n != 1 {
		t.Errorf("%d moves are to be paid, want one", n)
	}
	if n := len(m.TakeUnpaid()); n != 0 {
		t.Errorf("%d moves are to be paid again", n)
	}
}

// Why a move was given up is known until it is forgotten.
func TestWhyAMoveIsGone(t *testing.T) {
	m, now := two(t)
	m.Leave("c")
	_, err := m.Ready("a", now["a"])
	if err == nil || !strings.Contains(err.Error(), "node c, which it needs, has to end") {
		t.Errorf("the error is %v", err)
	}
	m.Forget("a")
	if err := m.Begin("a", now["a"]); err == nil || !strings.Contains(err.Error(), "no capacity is reserved") {
		t.Errorf("the error is %v", err)
	}
	if !m.GiveUpAll() || m.GiveUpAll() {
		t.Error("one move is left to be given up, once")
	}
}

// A move that is made because its nodes have drifted has nothing to pay for.
func TestDriftedMovesAreNotPaid(t *testing.T) {
	m, now := two(t)
	m.open["a"].Reason = consolidation.Drifted
	if err := m.Begin("a", now["a"]); err != nil {
		t.Fatal(err)
	}
	if n := len(m.TakeUnpaid()); n != 0 {
		t.Errorf("%d moves are to be paid", n)
	}
}

// Capacity that nobody has asked about for a minute is free again, unless the move has begun: then the pods of its nodes are being evicted, and
// need it also if the disruption controller makes no pass for a while.
func TestBegunMovesKeepTheirCapacity(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	m, now := twoBy(t, clock)
	left := func() string {
		out := ""
		m.reservations.Step(func(l *ledger.Ledger, at time.Time) {
			l.Tick(at)
			for _, node := range []string{"a", "b"} {
				if _, up := l.Held(node); up > 0 {
					out += node
				}
			}
		})
		return out
	}
	if err := m.Begin("a", now["a"]); err != nil {
		t.Fatal(err)
	}
	clock.Step(4 * time.Minute)
	if got := left(); got != "a" {
		t.Errorf("after four minutes capacity is reserved for nodes %q, want a", got)
	}
	m.Keep("a")
	clock.Step(14 * time.Minute)
	if got := left(); got != "a" {
		t.Errorf("after Keep and fourteen minutes capacity is reserved for nodes %q, want a", got)
	}
	clock.Step(time.Minute)
	if got := left(); got != "" {
		t.Errorf("a reservation that nobody asks about has no end: %q", got)
	}
}
