package binder

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

func TestPreFilter(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history func(w *world)
		want    answer
		nodes   sets.Set[string] // nil: all
	}{
		{name: "an idle ledger: Filter is switched off", history: func(*world) {}, want: answer{Code: "Skip"}},
		{
			name: "a stranger may look at every node, and Filter at the stranger", history: func(w *world) { w.place("old", pod("other")) },
			want: success,
		},
		{
			name: "as long as no node is watched, strangers don't pay for pods that wait or were refused",
			history: func(w *world) {
				w.submit(pod("waits"))
				w.submit(pod("hopeless"))
				w.refuse("hopeless", "no pool allows it")
			},
			want: answer{Code: "Skip"},
		},
		{
			name: "a planned pod looks at its own node only",
			history: func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true})
			},
			want: success, nodes: sets.New("node"),
		},
		{
			name:    "room found on an existing node is pinned, too",
			history: func(w *world) { w.place("old", pod("web")) },
			want:    success, nodes: sets.New("old"),
		},
		{
			name: "a pod that slipped through before its gate closed waits for its plan", history: func(w *world) { w.submit(pod("web")) },
			want: answer{"UnschedulableAndUnresolvable", "capacity for the pod is being planned"},
		},
		{
			name: "a pod that slipped through before its gate closed waits for its node", history: func(w *world) { w.launch("claim", pod("web")) },
			want: answer{"UnschedulableAndUnresolvable", "its node is being launched"},
		},
		{
			name: "a pod that is expected takes the room that is held for it",
			history: func(w *world) {
				c := mustClass(w.T, pod("web"))
				w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
					l.Existing("old", ledger.NodeStatus{})
					l.Commit("1", []capacity.Placement{{Class: c, Owner: "app", Node: "old"}}, now)
				})
			},
			want: success, nodes: sets.New("old"),
		},
		{
			name: "a refused pod may look at every node",
			history: func(w *world) {
				w.place("old", pod("other"))
				w.submit(pod("web"))
				w.refuse("web", "no pool allows it")
			},
			want: success,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.history(w)
			result, status := w.PreFilter(t.Context(), framework.NewCycleState(), pod("web"), nil)
			if diff := cmp.Diff(tc.want, answerOf(status)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			var nodes sets.Set[string]
			if result != nil {
				nodes = result.NodeNames
			}
			if diff := cmp.Diff(tc.nodes, nodes); diff != "" {
				t.Errorf("nodes (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods of a class are interchangeable: they get slots in plan order, and a pod keeps the one it got.
func TestPreFilterHandsSlotsOutInPlanOrder(t *testing.T) {
	w := newWorld(t)
	w.place("first", pod("web-1"))
	w.place("second", pod("web-2"))
	pin := func(name string) string {
		t.Helper()
		result, status := w.PreFilter(t.Context(), framework.NewCycleState(), pod(name), nil)
		if !status.IsSuccess() || result == nil || result.NodeNames.Len() != 1 {
			t.Fatalf("pod %s is not pinned: %v, %v", name, result, status)
		}
		return result.NodeNames.UnsortedList()[0]
	}
	got := []string{pin("web-2"), pin("web-1"), pin("web-2")}
	if diff := cmp.Diff([]string{"first", "second", "first"}, got); diff != "" {
		t.Errorf("nodes of web-2, web-1 and web-2 again (-want +got):\n%s", diff)
	}
}

func TestFilter(t *testing.T) {
	const (
		kept  = "cpu is reserved for pods planned for the node"
		apart = "anti-affinity to a pod planned for the node"
		early = "its node has not registered yet: has no controller that would recreate it"
	)
	// Every node has four CPUs.
	for _, tc := range []struct {
		name    string
		history func(w *world)
		pod     *corev1.Pod
		on      string
		used    []*corev1.Pod // the pods bound to the node
		want    answer
	}{
		{
			name: "an idle ledger has no objection", history: func(*world) {}, pod: pod("web"), on: "node", want: success,
		},
		{
			name: "a planned pod goes to its own node", pod: pod("web", cpu("4")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", cpu("4"))) },
		},
		{
			name: "a planned pod goes to no other node, whatever brings it there", pod: pod("web"), on: "other",
			history: func(w *world) { w.place("node", pod("web")) },
			want:    answer{"UnschedulableAndUnresolvable", "capacity is reserved for the pod on another node"},
		},
		{
			name: "a stranger can't take planned room", pod: pod("stranger", cpu("2")), on: "node",
			history: func(w *world) { w.place("node", pod("web", cpu("3"))) },
			want:    answer{"Unschedulable", kept},
		},
		{
			name: "a stranger may have what is left beside planned room", pod: pod("stranger", cpu("1")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", cpu("3"))) },
		},
		{
			name: "bound pods and planned room are counted together", pod: pod("stranger", cpu("1")), on: "node",
			history: func(w *world) { w.place("node", pod("web", cpu("3"))) },
			used:    []*corev1.Pod{pod("bound", cpu("1"))},
			want:    answer{"Unschedulable", kept},
		},
		{
			name: "on a node the ledger doesn't know there is nothing to keep", pod: pod("stranger", cpu("4")), on: "other", want: success,
			history: func(w *world) { w.place("node", pod("web", cpu("3"))) },
		},
		{
			name: "a pod of higher priority may take the room of lower ones", pod: pod("stranger", cpu("2"), priority(10)), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", cpu("3"), priority(5))) },
		},
		{
			name: "a pod of the same priority may not", pod: pod("stranger", cpu("2"), priority(5)), on: "node",
			history: func(w *world) { w.place("node", pod("web", cpu("3"), priority(5))) },
			want:    answer{"Unschedulable", kept},
		},
		{
			name: "a planned pod must leave the room of its neighbours", pod: pod("web", cpu("2")), on: "node",
			history: func(w *world) {
				w.place("node", pod("web", cpu("2")))
				w.place("node", pod("neighbour", cpu("2")))
			},
			used: []*corev1.Pod{pod("bound", cpu("1"))},
			want: answer{"Unschedulable", kept},
		},
		{
			name: "pods are a resource like any other", pod: pod("stranger"), on: "node",
			history: func(w *world) { w.place("node", pod("web", nothing)) },
			used:    []*corev1.Pod{pod("b1", nothing), pod("b2", nothing)},
			want:    answer{"Unschedulable", "pods is reserved for pods planned for the node"},
		},
		{
			name: "a planned host port is kept", pod: pod("stranger", hostPort(80)), on: "node",
			history: func(w *world) { w.place("node", pod("web", hostPort(80))) },
			want:    answer{"Unschedulable", "host port 80 is reserved for a pod planned for the node"},
		},
		{
			name: "a planned pod's anti-affinity holds before it is there", pod: pod("stranger", label("a")), on: "node",
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "a stranger's own anti-affinity keeps it off a node that is promised to whom it names", pod: pod("stranger", apartFrom("a")), on: "node",
			history: func(w *world) { w.place("node", pod("web", label("a"))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "anti-affinity to others is none", pod: pod("stranger", label("b"), apartFrom("c")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", label("d"), apartFrom("a"))) },
		},
		{
			name: "anti-affinity over zones says nothing about nodes", pod: pod("stranger", label("a")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"), over(corev1.LabelTopologyZone))) },
		},
		{
			name: "anti-affinity looks at its own namespace", pod: pod("stranger", label("a"), namespace("other")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"))) },
		},
		{
			name: "the next pod of a planned one's kind goes elsewhere, if they want to be alone", pod: pod("web-2", label("a"), apartFrom("a")), on: "node",
			history: func(w *world) { w.place("node", pod("web-1", label("a"), apartFrom("a"))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "a pod with room on the node was planned with the others in mind", pod: pod("web-1", label("a"), apartFrom("a")), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web-1", label("a"), apartFrom("a"))) },
		},
		{
			name: "a pod that can't be planned for has labels all the same", pod: pod("stranger", label("a"), contradicting), on: "node",
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "a pod that can't be planned for has anti-affinity all the same", pod: pod("stranger", apartFrom("a"), typo), on: "node",
			history: func(w *world) { w.place("node", pod("web", label("a"))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "a pod of higher priority keeps apart from planned ones as if they were there", pod: pod("stranger", label("a"), priority(10)), on: "node",
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"), priority(5))) },
			want:    answer{"Unschedulable", apart},
		},
		{
			name: "a pod of higher priority doesn't ask whose place it takes, once no plan helps it", pod: pod("stranger", label("a"), priority(10)), on: "node",
			history: func(w *world) {
				w.place("node", pod("web", apartFrom("a"), priority(5)))
				w.submit(pod("stranger", label("a"), priority(10)))
				w.refuse("stranger", "no pool")
			},
			want: success,
		},
		{
			name: "a refused pod of the same priority does", pod: pod("stranger", label("a"), priority(5)), on: "node",
			history: func(w *world) {
				w.place("node", pod("web", apartFrom("a"), priority(5)))
				w.submit(pod("stranger", label("a"), priority(5)))
				w.refuse("stranger", "no pool")
			},
			want: answer{"Unschedulable", apart},
		},
		{
			name: "a refused pod that is planned for again soon does", pod: pod("stranger", label("a"), priority(10)), on: "node",
			history: func(w *world) {
				w.place("node", pod("web", apartFrom("a"), priority(5)))
				w.submit(pod("stranger", label("a"), priority(10)))
				w.refuse("stranger", "the first nodes of a new image are being tried")
				w.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Await([]types.UID{"stranger"}) })
			},
			want: answer{"Unschedulable", apart},
		},
		{
			name: "no plan helps a pod of higher priority that can't be planned for", pod: pod("stranger", label("a"), contradicting, priority(10)), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"), priority(5))) },
		},
		{
			name: "a critical pod doesn't wait for a plan", pod: pod("stranger", label("a"), priority(scheduling.SystemCriticalPriority)), on: "node", want: success,
			history: func(w *world) { w.place("node", pod("web", apartFrom("a"), priority(5))) },
		},
		{
			name: "a stranger that nobody would recreate stays off a node that has not registered", pod: pod("stranger", orphan), on: "node",
			history: func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true})
			},
			want: answer{"Unschedulable", early},
		},
		{
			name: "once the node has registered it may go there", pod: pod("stranger", orphan), on: "node", want: success,
			history: func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true, Registered: true})
			},
		},
		{
			name: "a stranger stays off a node that still has a startup taint", pod: pod("stranger"), on: "node",
			history: func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true, Registered: true, Taints: []corev1.Taint{{Key: "cni", Effect: "NoSchedule"}}})
			},
			want: answer{"Unschedulable", "its node still has the taint cni:NoSchedule"},
		},
		{
			name: "room for DaemonSet pods that have not come yet is kept", pod: pod("stranger", cpu("3")), on: "node",
			history: func(w *world) {
				w.launch("claim", pod("web", cpu("1")))
				w.daemon("claim", "kube-system/proxy", "1")
				w.appear("claim", "node", ledger.NodeStatus{Managed: true, Registered: true})
			},
			want: answer{"Unschedulable", kept},
		},
		{
			name: "a DaemonSet's pod is who it is kept for", pod: pod("proxy", cpu("1"), daemon), on: "node", want: success,
			history: func(w *world) {
				w.launch("claim", pod("web", cpu("3")))
				w.daemon("claim", "kube-system/proxy", "1")
				w.appear("claim", "node", ledger.NodeStatus{Managed: true, Registered: true})
			},
		},
		{
			name: "nobody goes to a node that is being removed", pod: pod("stranger"), on: "node",
			history: func(w *world) { w.reservations.Fence("node") },
			want:    answer{"Unschedulable", "the node is being removed"},
		},
		{
			name: "a pod that can't be planned for can't take planned room either", pod: pod("stranger", cpu("2"), contradicting), on: "node",
			history: func(w *world) { w.place("node", pod("web", cpu("3"))) },
			want:    answer{"Unschedulable", kept},
		},
		{
			name: "a pod that can't be planned for counts as its priority says", pod: pod("stranger", cpu("2"), contradicting, priority(10)), on: "node",
			history: func(w *world) { w.place("node", pod("web", cpu("3"), priority(5))) }, want: success,
		},
		{
			name: "a pod that can't be planned for is not bound early", pod: pod("stranger", contradicting), on: "node",
			history: func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true, Registered: true})
			},
			want: answer{"Unschedulable", "its node is not initialized yet: pod can't be planned for: node selector and required node affinity contradict each other"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.history(w)
			if diff := cmp.Diff(tc.want, w.filter(tc.pod, tc.on, tc.used...)); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// DefaultPreemption works on clones of the state, so these must contain what PreFilter has found.
func TestFilterOnClonedState(t *testing.T) {
	w := newWorld(t)
	w.place("node", pod("web"))
	state := framework.NewCycleState()
	if _, status := w.PreFilter(t.Context(), state, pod("web"), nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	got := answerOf(w.Filter(t.Context(), state.Clone(), pod("web"), nodeInfo("other")))
	if want := (answer{"UnschedulableAndUnresolvable", "capacity is reserved for the pod on another node"}); got != want {
		t.Errorf("answer %v, want %v", got, want)
	}
}

var errBroken = errors.New("broken")

// A state that can't be read is an error, not a rejection: the pod must be tried again.
func TestFilterTellsAccidentsFromAnswers(t *testing.T) {
	w := newWorld(t)
	status := w.Filter(t.Context(), brokenState{framework.NewCycleState()}, pod("web"), nodeInfo("node"))
	if status.Code() != fwk.Error || !errors.Is(status.AsError(), errBroken) {
		t.Errorf("status %v, want an error that wraps %q", status, errBroken)
	}
}

type brokenState struct{ fwk.CycleState }

func (brokenState) Read(fwk.StateKey) (fwk.StateData, error) { return nil, errBroken }
