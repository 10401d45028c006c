package ledger

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

func repelling(key, app string) *capacity.Class {
	c := testClass(key, 100, 0)
	selector, err := labels.Parse("app=" + app)
	if err != nil {
		panic(err)
	}
	c.AntiAffinity = []capacity.PodTerm{{TopologyKey: corev1.LabelHostname, Namespaces: []string{""}, Selector: selector}}
	return c
}

// A pod that no plan has capacity for is rejected because of anti-affinity to a pod that is planned for a node. Once that pod is bound, the
// scheduler's own filter has to see the other one: otherwise no event would ever requeue it.
func TestPodsKeptApart(t *testing.T) {
	planned, other := repelling("planned", "a"), testClass("stranger", 100, 0)
	other.Labels = map[string]string{"app": "a"}
	for name, end := range map[string]func(l *Ledger){
		"the planned pod is bound": func(l *Ledger) {
			l.Pin("q")
			_ = l.Assume("q", "n", false)
			l.Settled("q", "n")
		},
		"the node goes":        func(l *Ledger) { l.Uncached("n", "id", epoch) },
		"the planned pod goes": func(l *Ledger) { l.Gone("q") },
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			l.Existing("n", upAndRunning)
			l.Submit(capacity.PodRef{UID: "q"}, planned, epoch)
			l.Commit("p", []capacity.Placement{{Class: planned, Pod: capacity.PodRef{UID: "q"}, Node: "n"}}, epoch)
			l.Submit(capacity.PodRef{UID: "x"}, other, epoch)
			l.Refuse([]types.UID{"x"}, "no pool", false, epoch)
			ask := &Ask{UID: "x", Class: other, Apart: l.Apart(other, false)}
			if why := l.Object("n", ask, cpuOf{allocatable: 1000}); why != reasons.ErrApart || !l.Refused("x") {
				t.Fatalf("the node says %q", why)
			}
			l.Take()
			end(l)
			l.Tick(epoch)
			comes := len(l.QueuedPods(l.Queue())) > 0 // planned for again, and opened later
			for _, ref := range l.Take().Activate {
				comes = comes || ref.UID == "x"
			}
			if !comes {
				t.Errorf("nobody brings the pod back:\n%s", l)
			}
			if why := l.Object("n", &Ask{UID: "x", Class: other, Apart: l.Apart(other, false)}, cpuOf{allocatable: 1000}); why != nil {
				t.Errorf("the node still says %q", why)
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}

// The same for a pod that is being planned for again when the node leaves the ledger, and is refused for the same reason then.
func TestPodsKeptApartThatAreQueuedWhenTheNodeLeaves(t *testing.T) {
	l := New()
	planned, kept := repelling("planned", "a"), testClass("kept", 100, 0)
	kept.Labels = map[string]string{"app": "a"}
	q, x := capacity.PodRef{UID: "q"}, capacity.PodRef{UID: "x"}
	l.Existing("n", upAndRunning)
	l.Submit(q, planned, epoch)
	l.Commit("p", []capacity.Placement{{Class: planned, Pod: q, Node: "n"}}, epoch)
	l.Submit(x, kept, epoch)
	l.Refuse([]types.UID{"x"}, "no pool", false, epoch)
	l.Submit(x, kept, epoch) // its cycle has failed
	l.Pin("q")
	_ = l.Assume("q", "n", false)
	changed(l, epoch)
	l.Settled("q", "n")
	l.Take()
	l.Tick(epoch)
	l.Refuse([]types.UID{"x"}, "no pool", false, epoch)
	if got := l.Take().Activate; len(got) != 1 || got[0] != x {
		t.Errorf("activated %v, want %v", got, x)
	}
}

// The same for a node that was planned on before it was known whose it is, after a restart.
func TestPodsKeptApartFromAMergedNode(t *testing.T) {
	l := New()
	planned, kept := repelling("planned", "a"), testClass("kept", 100, 0)
	kept.Labels = map[string]string{"app": "a"}
	q, x := capacity.PodRef{UID: "q"}, capacity.PodRef{UID: "x"}
	up := NodeStatus{ProviderID: "id", Managed: true, Registered: true, Ready: true, Initialized: true}
	l.Existing("n", up)
	l.Submit(q, planned, epoch)
	l.Commit("p", []capacity.Placement{{Class: planned, Pod: q, Node: "n"}}, epoch)
	l.Submit(x, kept, epoch)
	l.Refuse([]types.UID{"x"}, "no pool", false, epoch)
	l.Pin("q")
	_ = l.Assume("q", "n", false)
	l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
	l.Named("claim", "n", "id")
	l.Settled("q", "n")
	l.Cached("n", up, epoch)
	l.Take()
	l.Tick(epoch)
	if got := l.Take().Activate; len(l.nodes) > 0 || len(got) != 1 || got[0] != x {
		t.Errorf("%d nodes are left, activated %v; want %v", len(l.nodes), got, x)
	}
}

// However many nodes leave the ledger between two ticks, a refused pod that had to keep off them is tried once, and no other refused pod is.
func TestEachPodKeptApartIsTriedOnce(t *testing.T) {
	l := New()
	planned, kept, other := repelling("planned", "a"), testClass("kept", 100, 0), testClass("other", 100, 0)
	kept.Labels = map[string]string{"app": "a"}
	nodes := []string{"n0", "n1", "n2"}
	for _, n := range nodes {
		l.Existing(n, upAndRunning)
		l.Submit(capacity.PodRef{UID: types.UID("on-" + n)}, planned, epoch)
		l.Commit(n, []capacity.Placement{{Class: planned, Pod: capacity.PodRef{UID: types.UID("on-" + n)}, Node: n}}, epoch)
	}
	l.Submit(capacity.PodRef{UID: "kept"}, kept, epoch)
	l.Submit(capacity.PodRef{UID: "other"}, other, epoch)
	l.Refuse([]types.UID{"kept", "other"}, "no pool", false, epoch)
	for i, n := range nodes {
		uid := types.UID("on-" + n)
		l.Pin(uid)
		_ = l.Assume(uid, n, false)
		if l.Take(); i > 0 {
			l.Settled(uid, n)
		}
	}
	for range 2 {
		l.Tick(epoch)
		if got := l.Take().Activate; len(got) != 1 || got[0].UID != "kept" {
			t.Errorf("activated %v", got)
		}
		l.Settled("on-n0", "n0") // in the first round: the last node leaves
	}
	if l.Tick(epoch); len(l.Take().Activate) > 0 {
		t.Error("activated again, though no node has left")
	}
}

// Nothing is planned for a pod that can't be planned for, and the scheduler has no event for capacity that was reserved for others. The
// pod is requeued when there may be capacity, not minutes later.
func TestPodsThatCannotBePlannedForComeBack(t *testing.T) {
	planned := testClass("planned", 600, 0)
	for name, tc := range map[string]struct {
		then func(l *Ledger)
		want bool
	}{
		"nothing has changed": {func(l *Ledger) { l.Tick(epoch) }, false},
		"a planned pod goes, another stays": {func(l *Ledger) {
			l.Gone("q")
			l.Tick(epoch)
		}, true},
		"the planned pods are bound, the node is watched": {func(l *Ledger) {
			for _, uid := range []types.UID{"q", "r"} {
				l.Pin(uid)
				_ = l.Assume(uid, "n", false)
				l.Settled(uid, "n")
			}
			l.Tick(epoch)
		}, false},
		"the node is initialized": {func(l *Ledger) {
			l.Cached("n", NodeStatus{ProviderID: "id", Managed: true, Registered: true, Ready: true, Initialized: true}, epoch)
		}, true},
		"the node goes": {func(l *Ledger) { l.Uncached("n", "id", epoch); l.ClaimGone("claim", "it was deleted", false, epoch) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
			for _, uid := range []types.UID{"q", "r"} {
				l.Submit(capacity.PodRef{UID: uid}, planned, epoch)
				l.Commit(string(uid), []capacity.Placement{{Class: planned, Pod: capacity.PodRef{UID: uid}, Node: "claim"}}, epoch)
			}
			l.Named("claim", "n", "id")
			l.Cached("n", NodeStatus{ProviderID: "id", Managed: true, Registered: true, Ready: true}, epoch)
			l.TurnAway("n", capacity.PodRef{UID: "x"}, false)
			l.Take()
			tc.then(l)
			comes := 0
			for _, ref := range l.Take().Activate {
				if ref.UID == "x" {
					comes++
				}
			}
			if comes > 1 || comes == 1 != tc.want {
				t.Errorf("activated %d times, want it: %t\n%s", comes, tc.want, l)
			}
			l.next.freed = true
			if l.Tick(epoch); len(l.nodes) > 0 && tc.want {
				for _, ref := range l.Take().Activate {
					if ref.UID == "x" {
						t.Error("activated once more without another try")
					}
				}
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}

// Apart is computed before the scheduler looks at nodes, and costs nothing if it is empty.
func TestApart(t *testing.T) {
	l := New()
	l.Existing("n", upAndRunning)
	planned := repelling("planned", "a")
	l.Submit(capacity.PodRef{UID: "q"}, planned, epoch)
	other := testClass("stranger", 100, 0)
	other.Labels = map[string]string{"app": "a"}
	if got := l.Apart(other, false); got != nil {
		t.Errorf("nothing is planned yet: %v", got)
	}
	l.Commit("p", []capacity.Placement{{Class: planned, Pod: capacity.PodRef{UID: "q"}, Node: "n"}}, epoch)
	if got := l.Apart(other, false); len(got) != 1 || !got["planned"] {
		t.Errorf("apart from %v", got)
	}
	if got := l.Apart(testClass("other", 100, 0), false); got != nil {
		t.Errorf("apart from %v", got)
	}
	for priority, preempts := range map[int32]bool{1: true, -1: false} {
		other.Priority = priority
		if err := check(l); err != nil {
			t.Error(err)
		}
		if alone, preempting := l.Apart(other, false), l.Apart(other, true); len(alone) != 1 || len(preempting) == 0 != preempts {
			t.Errorf("priority %d: apart from %v, and if it may preempt from %v", priority, alone, preempting)
		}
	}
}
