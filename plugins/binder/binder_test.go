package binder

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
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
			verbose := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(4))))
			if diff := cmp.Diff(tc.want, answerOf(w.gate(w.reservations).PreEnqueue(verbose, pod("web")))); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
			if tc.want != success {
				tc.want.Reason = gated
			}
			quiet := klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(3))))
			if diff := cmp.Diff(tc.want, answerOf(w.gate(unexplained{w.reservations, t}).PreEnqueue(quiet, pod("web")))); diff != "" {
				t.Errorf("answer where reasons are not logged (-want +got):\n%s", diff)
			}
		})
	}
}

// unexplained is a ledger that must not be asked for reasons: they take longer to find the more pods wait.
type unexplained struct {
	GateLedger
	*testing.T
}

func (u unexplained) Gate(uid types.UID) (bool, string) {
	u.Errorf("the ledger is asked what pod %s waits for", uid)
	return u.GateLedger.Gate(uid)
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

// The scheduler's cache may have a node of ours before the ledger has it. Until then nothing is known of what is planned for the node, and
// only pods of DaemonSets may go there: others took the capacity of those that it was launched for.
func TestANodeThatTheLedgerDoesNotHaveYet(t *testing.T) {
	hidden := map[string]string{objects.AnnotationHiddenTaints: `[{"key":"karpenter.sh/unregistered","effect":"NoSchedule"}]`}
	for _, tt := range []struct {
		name                string
		annotations, labels map[string]string
		daemon, watched     bool
		why                 string
	}{
		{name: "it boots", annotations: hidden, why: errUnknownNode.Error()},
		{name: "a DaemonSet's pod", annotations: hidden, daemon: true},
		{name: "it has registered", annotations: hidden, labels: map[string]string{capacity.LabelRegistered: "true"}},
		{name: "somebody else's node"},
		{name: "the ledger has it", annotations: hidden, watched: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", Annotations: tt.annotations, Labels: tt.labels}}
			w.handle.nodes = []*corev1.Node{node}
			if tt.watched {
				w.place("node", pod("planned"))
			}
			web := pod("web")
			if tt.daemon {
				web.OwnerReferences[0].Kind = "DaemonSet"
			}
			want := success
			if tt.why != "" {
				want = answer{"Unschedulable", tt.why}
			}
			if got := answerOf(w.Reserve(t.Context(), nil, web, "node")); got != want {
				t.Errorf("Reserve answers %v, want %v", got, want)
			}
			if activated := len(w.handle.activated) > 0; activated != (tt.why != "") {
				t.Errorf("activated: %v", w.handle.activated)
			}
			w.place("other", pod("elsewhere")) // a watched node turns Filter on
			state := framework.NewCycleState()
			if _, status := w.PreFilter(t.Context(), state, web, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			info := nodeInfo("node")
			info.SetNode(&corev1.Node{ObjectMeta: node.ObjectMeta, Status: info.Node().Status})
			if got := answerOf(w.Filter(t.Context(), state, web, info)); got != want {
				t.Errorf("Filter answers %v, want %v", got, want)
			}
		})
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
		{"typed arguments of somebody else", &corev1.Pod{}, `profile "ours": Binder arguments: want config.dovetail.sh/v1alpha1 BinderArgs, have *v1.Pod`},
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
