package launch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// A kubelet registers before its node is verified as launched, and the first of two pods is placed there. The scheduler's cache counts that
// pod, so its reservation must not be counted, too: a node with room for just these two was said to refuse the second, and had failed.
func TestANodeIsVerifiedWhilePodsComeToIt(t *testing.T) {
	const room = 2
	for _, tt := range []struct {
		name    string
		when    string // the first pod is placed; empty: never
		there   bool   // the scheduler's cache has the Node already
		refused bool   // the filters refuse both anyway
		want    int    // pods that are said to be refused
	}{
		{name: "no pod has come"},
		{name: "before the scheduler's cache is looked at", when: "Refresh"},
		{name: "while the filters are asked", when: "Verify"},
		{name: "no pod has come, and the filters refuse the node", refused: true, want: 2},
		{name: "the filters refuse a node that others' pods may be on", there: true, refused: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			w.submit(2)
			class, err := w.pending.Classes.Class(w.pod(0))
			if err != nil {
				t.Fatal(err)
			}
			c := &capacity.Claim{Name: "c", UID: "c", Pool: "pool", Allocatable: capacity.Resources{"cpu": 1000 * room}}
			node := w.NodeFor(c, capacity.Instance{NodeName: "n", ProviderID: "aws:///a/i-1"}, nil)
			w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.AddNode(c.Name, &capacity.Node{Name: c.Name}, nil, true, now)
				l.Commit("plan", []capacity.Placement{{Class: class, Pod: capacity.RefOf(w.pod(0)), Node: c.Name}, {Class: class, Pod: capacity.RefOf(w.pod(1)), Node: c.Name}}, now)
			})
			if tt.there {
				w.there = node.Name
			}
			placed := 0
			place := func(when string) {
				if tt.when != when {
					return
				}
				w.parts.Nodes.ClaimNamed(c.Name, node.Name, node.Spec.ProviderID)
				w.parts.Nodes.NodeCached(node)
				if err := w.reservations.Assume(w.pod(0).UID, node.Name, false); err != nil {
					t.Fatal(err)
				}
				placed++
			}
			w.during["Refresh"] = func() { place("Refresh") }
			w.rejects = func(tr capacity.Trial) (out []capacity.Rejection) {
				free := room - placed
				place("Verify") // a filter may see it or not
				for i := range tr.Steps {
					if i >= min(free, room-placed) || tt.refused {
						out = append(out, capacity.Rejection{Step: i, Plugin: "NodeResourcesFit", Reason: "Insufficient cpu"})
					}
				}
				return out
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
			w.parts.finisher.refilter(klog.NewContext(t.Context(), logger), c, node)
			said := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if got := strings.Count(said, "The filters refuse a planned pod"); got != tt.want {
				t.Errorf("%d pods are said to be refused, want %d:\n%s", got, tt.want, said)
			}
			if queued := len(w.queued()); queued != tt.want {
				t.Errorf("%d pods are planned anew, want %d", queued, tt.want)
			}
			if (placed == 1) != (tt.when != "") {
				t.Errorf("%d pods were placed", placed)
			}
		})
	}
}

// A plan may be overtaken before its instance is a node: other pods of the workload come or go, and the spread refuses the planned pod there. That is
// forgiven twice, as it is when the pod's own scheduling cycle finds out (docs/guard.md).
func TestAnInstanceThatIsOvertakenBeforeItIsANode(t *testing.T) {
	w, clock := guarded(t, spending.Config{})
	const forgiven = 2
	w.submit(forgiven + 1)
	class, err := w.pending.Classes.Class(w.pod(0))
	if err != nil {
		t.Fatal(err)
	}
	workload := w.spending.WorkloadOf(w.pod(0))
	refused := 0
	w.rejects = func(capacity.Trial) []capacity.Rejection {
		refused++
		return []capacity.Rejection{{Step: 0, Plugin: "PodTopologySpread", Reason: "node(s) didn't match pod topology spread constraints"}}
	}
	for i := range forgiven + 1 {
		pod := w.pod(i)
		c := &capacity.Claim{Name: fmt.Sprint("c", i), UID: fmt.Sprint("c", i), Pool: "pool", NodeClass: "class", CreatedAt: clock.Now(), Launched: true,
			Purchase: &guard.Purchase{Round: fmt.Sprint("r", i), Workloads: []guard.Workload{workload}}}
		w.spending.Buy(c, nil, map[types.UID]guard.Workload{pod.UID: workload})
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.AddNode(c.Name, &capacity.Node{Name: c.Name}, nil, true, now)
			l.Commit("plan", []capacity.Placement{{Class: class, Pod: capacity.RefOf(pod), Node: c.Name}}, now)
		})
		clock.Step(time.Second)
		before, after := w.pod(100+i), w.pod(100+i)
		after.Spec.NodeName = "elsewhere"
		w.spending.Pods().OnUpdate(before, after)
		w.parts.finisher.refilter(t.Context(), c, w.NodeFor(c, capacity.Instance{NodeName: "n", ProviderID: "aws:///a/i"}, nil))
		w.spending.Ended(c.Name, true)
		why, _ := w.spending.Check(1, w.parts.claims.All).Refuses(&capacity.Pool{Name: "pool", NodeClass: "class"}, nil, []guard.Workload{workload}, nil, false, "")
		if paused := why != ""; paused != (i == forgiven) {
			t.Errorf("after %d instances launches are paused: %v, %s", i+1, paused, why)
		}
		if refused != i+1 {
			t.Fatalf("the filters have refused %d instances, want %d", refused, i+1)
		}
	}
}

// A move empties a node with pods of a workload whose pods are spread, one after the other. What is planned meanwhile counts on the places that are
// reserved for those that have yet to leave; the filters count them where they are. The refusal is no verdict on the instance, and nothing else
// is bought for its pod.
func TestAnInstanceWhosePodsAreRefusedDuringAMove(t *testing.T) {
	for _, tt := range []struct {
		name, plugin string
		on           []string // drained nodes
		want         int      // pods that are planned anew
	}{
		{"a spread, and pods that have yet to leave", "PodTopologySpread", []string{"old"}, 0},
		{"affinity, and pods that have yet to leave", "InterPodAffinity", []string{"old"}, 0},
		{"a spread, and nothing is emptied", "PodTopologySpread", nil, 1},
		{"a spread, and others have yet to leave", "PodTopologySpread", []string{"another"}, 1},
		{"resources", "NodeResourcesFit", []string{"old"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, clock := guarded(t, spending.Config{})
			w.submit(2)
			leaving := w.pod(1)
			leaving.Spec.NodeName = "old"
			w.otherPods, w.drained = map[string][]*corev1.Pod{"old": {leaving}}, tt.on
			class, err := w.pending.Classes.Class(w.pod(0))
			if err != nil {
				t.Fatal(err)
			}
			workload := w.spending.WorkloadOf(w.pod(0))
			w.rejects = func(capacity.Trial) []capacity.Rejection {
				return []capacity.Rejection{{Step: 0, Plugin: tt.plugin, Reason: "no"}}
			}
			c := &capacity.Claim{Name: "c", UID: "c", Pool: "pool", NodeClass: "class", CreatedAt: clock.Now(), Launched: true,
				Purchase: &guard.Purchase{Round: "r", Workloads: []guard.Workload{workload}}}
			w.spending.Buy(c, nil, map[types.UID]guard.Workload{w.pod(0).UID: workload})
			w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.AddNode(c.Name, &capacity.Node{Name: c.Name}, nil, true, now)
				l.Commit("plan", []capacity.Placement{{Class: class, Pod: capacity.RefOf(w.pod(0)), Node: c.Name}}, now)
			})
			clock.Step(time.Second)
			before := len(w.queued())
			w.parts.finisher.refilter(t.Context(), c, w.NodeFor(c, capacity.Instance{NodeName: "n", ProviderID: "aws:///a/i"}, nil))
			if got := len(w.queued()) - before; got != tt.want {
				t.Errorf("%d pods are planned anew, want %d", got, tt.want)
			}
		})
	}
}
