package binder

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// answer is a status as the framework sees it.
type answer struct{ Code, Reason string }

func answerOf(s *fwk.Status) answer { return answer{s.Code().String(), s.Message()} }

var success = answer{Code: "Success"}

func TestPreEnqueue(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history func(w *world)
		want    answer
	}{
		{"a pod nobody knows may enter the queue", func(*world) {}, success},
		{"a pod nobody knows may enter the queue while others wait", func(w *world) { w.submit(pod("other")) }, success},
		{
			"a pod that waits for its plan stays out", func(w *world) { w.submit(pod("web")) },
			answer{"UnschedulableAndUnresolvable", "capacity for the pod is being planned"},
		},
		{
			"a pod whose node is on its way stays out", func(w *world) { w.launch("claim", pod("web")) },
			answer{"UnschedulableAndUnresolvable", "its node is being launched"},
		},
		{
			"a pod whose node is there may enter", func(w *world) {
				w.launch("claim", pod("web"))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true})
			},
			success,
		},
		{
			"a pod that nobody would recreate stays out until its node has registered", func(w *world) {
				w.launch("claim", pod("web", orphan))
				w.appear("claim", "node", ledger.NodeStatus{Managed: true})
			},
			answer{"UnschedulableAndUnresolvable", "its node has not registered yet: has no controller that would recreate it"},
		},
		{
			"a pod that was refused may enter, so that preemption or luck may help it", func(w *world) {
				w.submit(pod("web"))
				w.refuse("web", "no pool allows it")
			},
			success,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.history(w)
			if diff := cmp.Diff(tc.want, answerOf((&Gate{ledger: w.reservations}).PreEnqueue(t.Context(), pod("web")))); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

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
			name: "a pod of higher priority doesn't ask whose place it takes", pod: pod("stranger", label("a"), priority(10)), on: "node", want: success,
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

func TestSignPod(t *testing.T) {
	type signature struct {
		Answer    answer
		Fragments int
	}
	for _, tc := range []struct {
		name    string
		history func(w *world)
		pod     *corev1.Pod
		want    signature
	}{
		{"an idle ledger adds nothing to a signature", func(*world) {}, pod("web"), signature{success, 0}},
		{
			"a planned pod is not batched", func(w *world) { w.place("node", pod("web")) }, pod("web"),
			signature{answer{"Unschedulable", "capacity is planned for the pod"}, 0},
		},
		{"a stranger is signed with its class while room is kept", func(w *world) { w.place("node", pod("web")) }, pod("stranger"), signature{success, 1}},
		{
			"a pod without a class is not batched while room is kept", func(w *world) { w.place("node", pod("web")) }, pod("stranger", contradicting),
			signature{answer{"Unschedulable", "pod can't be planned for: node selector and required node affinity contradict each other"}, 0},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.history(w)
			fragments, status := w.SignPod(t.Context(), tc.pod)
			if diff := cmp.Diff(tc.want, signature{answerOf(status), len(fragments)}); diff != "" {
				t.Errorf("signature (-want +got):\n%s", diff)
			}
		})
	}
}

// Two pods for which Filter may return different results must not have the same signature.
func TestSignPodTellsClassesApart(t *testing.T) {
	w := newWorld(t)
	w.place("node", pod("web"))
	sign := func(p *corev1.Pod) []fwk.SignFragment {
		t.Helper()
		fragments, status := w.SignPod(t.Context(), p)
		if !status.IsSuccess() || len(fragments) == 0 {
			t.Fatalf("pod %s is not signed: %v", p.Name, status)
		}
		return fragments
	}
	plain := sign(pod("a"))
	if diff := cmp.Diff(plain, sign(pod("b"))); diff != "" {
		t.Errorf("pods of one class have different signatures:\n%s", diff)
	}
	for name, other := range map[string]*corev1.Pod{"priority": pod("c", priority(1)), "early binding": pod("d", orphan), "requests": pod("e", cpu("3"))} {
		if cmp.Equal(plain, sign(other)) {
			t.Errorf("a pod of another %s has the same signature", name)
		}
	}
}

func TestReserveMovesThePromiseToTheCache(t *testing.T) {
	w := newWorld(t)
	web := pod("web", cpu("3"))
	w.place("node", web)
	ctx := t.Context()
	if _, status := w.PreFilter(ctx, framework.NewCycleState(), web, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := w.Reserve(ctx, nil, web, "node"); !status.IsSuccess() {
		t.Fatalf("Reserve: %v", status)
	}
	// The scheduler's cache counts the pod now. If the reservation counted as well, pods that fit would be kept out.
	if got := w.filter(pod("stranger", cpu("1")), "node", web); got != success {
		t.Errorf("beside the assumed pod: %v, want %v", got, success)
	}
	w.Unreserve(ctx, nil, web, "node")
	if got := w.filter(pod("stranger", cpu("2")), "node").Code; got != "Unschedulable" {
		t.Errorf("after Unreserve a stranger's answer is %s: the pod has lost its promise", got)
	}
	if status := w.Reserve(ctx, nil, web, "node"); !status.IsSuccess() {
		t.Fatalf("Reserve once more: %v", status)
	}
	w.PostBind(ctx, nil, web, "node")
	if w.reservations.Knows(web.UID) {
		t.Error("the promise was kept, but the ledger still knows the pod")
	}
	if got := w.filter(pod("stranger", cpu("1")), "node", web); got != success {
		t.Errorf("beside the bound pod: %v, want %v", got, success)
	}
}

// A node may be fenced after the pod's Filter has passed. No event reports that to the queue: the pod has to be activated, or it would
// wait for another node's event, or for minutes.
func TestReserveOnAFencedNode(t *testing.T) {
	w := newWorld(t)
	if !w.reservations.Fence("node") {
		t.Fatal("the node can't be fenced")
	}
	web := pod("web")
	status := w.Reserve(t.Context(), nil, web, "node")
	if diff := cmp.Diff(answer{"Unschedulable", "the node is being removed"}, answerOf(status)); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"default/web"}, w.handle.activated); diff != "" {
		t.Errorf("woken pods (-want +got):\n%s", diff)
	}
	w.Unreserve(t.Context(), nil, web, "node") // the framework also undoes failed reservations
	if got := w.filter(pod("stranger"), "node"); got.Reason != "the node is being removed" {
		t.Errorf("after Unreserve the fence has gone: %v", got)
	}
}

// A pod that can't be planned for and is rejected to protect a reservation has to be remembered: PostFilter does not submit it, and no
// cluster event reports that the reservation has ended.
func TestPodsThatCannotBePlannedForComeBackForRoomThatWasKept(t *testing.T) {
	w := newWorld(t)
	w.place("node", pod("web", cpu("3")))
	w.place("node", pod("other", cpu("500m")))
	if got := w.filter(pod("odd", typo, cpu("2")), "node"); got.Reason != "cpu is reserved for pods planned for the node" {
		t.Fatalf("answer %v", got)
	}
	if got := w.filter(pod("later", cpu("2")), "node"); got.Reason != "cpu is reserved for pods planned for the node" {
		t.Fatalf("answer %v", got) // Provision makes this one demand
	}
	activated := func() (out []types.UID) {
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Tick(now)
			for _, ref := range l.Take().Activate {
				out = append(out, ref.UID)
			}
		})
		return out
	}
	activated()
	w.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Gone("web") })
	if diff := cmp.Diff([]types.UID{"odd"}, activated()); diff != "" {
		t.Errorf("activated when the room was given back (-want +got):\n%s", diff)
	}
}

func TestQueueingHint(t *testing.T) {
	for _, tc := range []struct {
		name    string
		history func(w *world)
		want    fwk.QueueingHint
	}{
		{"a stranger may fit the new node", func(*world) {}, fwk.Queue},
		{"a pod that waits for its plan need not look", func(w *world) { w.submit(pod("web")) }, fwk.QueueSkip},
		{"a pod that waits for its own node need not look", func(w *world) { w.launch("claim", pod("web")) }, fwk.QueueSkip},
		{
			// No capacity is launched for it. Skip would strand it until the queue is flushed, minutes later.
			"a refused pod may fit the new node", func(w *world) {
				w.submit(pod("web"))
				w.refuse("web", "no pool allows it")
			},
			fwk.Queue,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			tc.history(w)
			events, err := w.EventsToRegister(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(events) != 1 || events[0].Event.Resource != fwk.Node || events[0].Event.ActionType != fwk.Add {
				t.Fatalf("events %v; every further one makes the queue look at all gated pods more often", events)
			}
			got, err := events[0].QueueingHintFn(klog.Background(), pod("web"), nil, &corev1.Node{})
			if err != nil || got != tc.want {
				t.Errorf("hint %v (error %v), want %v", got, err, tc.want)
			}
		})
	}
}

func TestNewNamesTheProfile(t *testing.T) {
	for _, tc := range []struct {
		name string
		args runtime.Object
		want string
	}{
		{"none", nil, ""},
		{"an empty object", &runtime.Unknown{Raw: []byte("{}")}, ""},
		{"no bytes", &runtime.Unknown{}, ""},
		{"a field", &runtime.Unknown{Raw: []byte(`{"a":1}`)}, `profile "ours": Binder arguments: unknown field "a"`},
		{"typed arguments of somebody else", &corev1.Pod{}, `profile "ours": Binder arguments: want config.dovetail.sh/v1 BinderArgs, have *v1.Pod`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			factory := New(newWorld(t).reservations, func(fwk.Handle) Classifier { return classifier{} })
			plugin, err := factory(context.Background(), tc.args, &handle{})
			got := ""
			if err != nil {
				got = err.Error()
			} else if plugin.Name() != Name {
				t.Errorf("plugin %q, want %q", plugin.Name(), Name)
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
}

// classifier is for pods without volumes.
type classifier struct{}

func (classifier) Class(pod *corev1.Pod) (*capacity.Class, error) {
	return capacity.ClassOf(pod, capacity.VolumeInfo{})
}

func mustClass(t *testing.T, p *corev1.Pod) *capacity.Class {
	t.Helper()
	c, err := classifier{}.Class(p)
	if err != nil {
		t.Fatalf("class of %s: %v", p.Name, err)
	}
	return c
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
