package provision

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

const (
	planning = "capacity for the pod is being planned"
	failed   = "the planned node did not pass the scheduler's filters"
)

// world is the plugin with a real ledger.
type world struct {
	*testing.T
	clock        *clocktesting.FakeClock
	reservations *reservations.Ledger
	// later are pods that were left to preemption first.
	later []types.UID
	class *capacity.Class // of the pod the test asks about
}

// SubmitLater also records the call, which Reservations only pass on to the launcher.
func (w *world) SubmitLater(ref capacity.PodRef, c *capacity.Class) {
	w.later = append(w.later, ref.UID)
	w.reservations.SubmitLater(ref, c)
}

func (w *world) SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(string) (string, string)) (bool, string) {
	return w.reservations.SubmitRefused(ref, c, by)
}

func (w *world) Withdraw(uid types.UID) { w.reservations.Withdraw(uid) }

// Class implements Classifier for pods without volumes.
func (w *world) Class(pod *corev1.Pod) (*capacity.Class, error) {
	return capacity.ClassOf(pod, capacity.VolumeInfo{})
}

func (w *world) step(f func(l *ledger.Ledger, now time.Time)) { w.reservations.Step(f) }

func (w *world) submit(pod *corev1.Pod) {
	w.reservations.Submit(capacity.PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}, w.class)
}

func (w *world) refuse(pod *corev1.Pod, why string, retryable bool) {
	w.submit(pod)
	w.step(func(l *ledger.Ledger, now time.Time) { l.Refuse([]types.UID{pod.UID}, why, retryable, now) })
}

// plan plans the pod on a node that is being launched.
func (w *world) plan(pod *corev1.Pod) {
	w.submit(pod)
	w.step(func(l *ledger.Ledger, now time.Time) {
		l.AddNode("claim", &capacity.Node{}, nil, false, now)
		l.Commit("p", []capacity.Placement{{Class: w.class, Pod: capacity.PodRef{UID: pod.UID}, Node: "claim"}}, now)
	})
}

// nodeThere adds the planned node to the scheduler's cache, which opens the pod's gate.
func (w *world) nodeThere() {
	w.step(func(l *ledger.Ledger, now time.Time) {
		l.Launching("claim", now)
		l.Named("claim", "node", "")
		l.Cached("node", ledger.NodeStatus{Managed: true}, now)
	})
}

// cycle begins the pod's next cycle: the pod is pinned to the planned node.
func (w *world) cycle(pod *corev1.Pod) {
	w.Helper()
	if node, why := w.reservations.Pin(pod.UID); node != "node" {
		w.Fatalf("the pod is pinned to %q (%s), want its planned node", node, why)
	}
}

func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-1", UID: "web-1",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{
			{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func ownedBy(kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences[0].Kind = kind }
}

func priority(n int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Priority = &n }
}

func contradicting(p *corev1.Pod) {
	p.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}}}}}}
}

func TestPostFilter(t *testing.T) {
	type answer struct {
		Code   string
		Reason string
		Gated  bool // the pod stays out of the scheduling queue
		Later  bool // it is left to preemption first
	}
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		args    Args
		history func(w *world, pod *corev1.Pod) // what has happened to the pod before
		said    string                          // the reason of a PreFilter plugin, for every node
		want    answer
	}{
		{
			name: "a pod seen for the first time waits and is not helped by preemption",
			pod:  pod(),
			want: answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name: "a pod of a DaemonSet is not helped by a new node",
			pod:  pod(ownedBy("DaemonSet")),
			want: answer{Code: "Unschedulable", Reason: "a new node does not help a DaemonSet's pod"},
		},
		{
			name: "a pod that names a DaemonSet without being controlled by it is an ordinary pod",
			pod:  pod(ownedBy("DaemonSet"), func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil }),
			want: answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name: "a pod that capacity can't help is told why",
			pod:  pod(contradicting),
			want: answer{Code: "Unschedulable", Reason: "no node is launched for the pod: pod can't be planned for: node selector and required node affinity contradict each other"},
		},
		{
			name: "a critical pod preempts before a machine is bought for it",
			pod:  pod(priority(scheduling.SystemCriticalPriority)),
			want: answer{Code: "Unschedulable", Reason: "preemption is tried before a node is launched", Later: true},
		},
		{
			name: "a pod just below critical waits like any other",
			pod:  pod(priority(scheduling.SystemCriticalPriority - 1)),
			want: answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name: "with preemptFirst every pod preempts first",
			pod:  pod(),
			args: Args{PreemptFirst: true},
			want: answer{Code: "Unschedulable", Reason: "preemption is tried before a node is launched", Later: true},
		},
		{
			name:    "a pod whose plan is being made keeps waiting",
			pod:     pod(),
			history: func(w *world, p *corev1.Pod) { w.submit(p) },
			want:    answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name:    "a pod whose node is being launched keeps waiting",
			pod:     pod(),
			history: func(w *world, p *corev1.Pod) { w.plan(p) },
			want:    answer{Code: "Success", Reason: "its node is being launched", Gated: true},
		},
		{
			name:    "what PreFilter has said of every node is not said again",
			pod:     pod(),
			history: func(w *world, p *corev1.Pod) { w.plan(p) },
			said:    "its node is being launched",
			want:    answer{Code: "Success", Gated: true},
		},
		{
			name:    "a pod that was refused for good is left to preemption, with the reason",
			pod:     pod(),
			history: func(w *world, p *corev1.Pod) { w.refuse(p, "no pool allows it", false) },
			want:    answer{Code: "Unschedulable", Reason: "no pool allows it"},
		},
		{
			name:    "a pod that was refused for now is not planned for again at once",
			pod:     pod(),
			history: func(w *world, p *corev1.Pod) { w.refuse(p, "no capacity", true) },
			want:    answer{Code: "Unschedulable", Reason: "no capacity"},
		},
		{
			name: "a pod that was refused for now is planned for again after its back-off",
			pod:  pod(),
			history: func(w *world, p *corev1.Pod) {
				w.refuse(p, "no capacity", true)
				w.clock.Step(time.Minute)
			},
			want: answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name: "a pod whose cycle began before its plan was made is not failed by it",
			pod:  pod(),
			history: func(w *world, p *corev1.Pod) {
				w.plan(p)
				w.nodeThere()
			},
			want: answer{Code: "Success"},
		},
		{
			name: "a pod that its planned node did not suit is planned for again at once",
			pod:  pod(),
			history: func(w *world, p *corev1.Pod) {
				w.plan(p)
				w.nodeThere()
				w.cycle(p)
			},
			want: answer{Code: "Success", Reason: planning, Gated: true},
		},
		{
			name: "a pod that two planned nodes didn't suit backs off, and nobody is evicted for it in that second",
			pod:  pod(),
			history: func(w *world, p *corev1.Pod) {
				w.plan(p)
				w.nodeThere()
				w.cycle(p)
				w.plan(p)
				w.cycle(p)
			},
			want: answer{Code: "Success", Reason: failed},
		},
		{
			name: "a pod that planned nodes keep not suiting is left to preemption",
			pod:  pod(),
			history: func(w *world, p *corev1.Pod) {
				for range 8 {
					w.submit(p)
					w.clock.Step(time.Hour)
					w.step(func(l *ledger.Ledger, now time.Time) {
						l.Tick(now)
						l.Existing("node", ledger.NodeStatus{})
						l.Commit("p", []capacity.Placement{{Class: w.class, Pod: capacity.PodRef{UID: p.UID}, Node: "node"}}, now)
					})
					w.cycle(p)
				}
			},
			want: answer{Code: "Unschedulable", Reason: failed},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
			w := &world{T: t, clock: c, reservations: reservations.New(c)}
			if class, err := w.Class(tc.pod); err == nil {
				w.class = class
			}
			if tc.history != nil {
				tc.history(w, tc.pod)
			}
			p := &Provision{args: &tc.args, demand: w, class: w}
			found := framework.NewDefaultNodeToStatus()
			if tc.said != "" {
				found.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, tc.said))
			}
			result, status := p.PostFilter(t.Context(), nil, tc.pod, found)
			if result != nil {
				t.Errorf("PostFilter names a node: %v; the pod's nomination must be left as it is", result)
			}
			gated, _ := w.reservations.Gate(tc.pod.UID)
			got := answer{Code: status.Code().String(), Reason: status.Message(), Gated: gated, Later: len(w.later) > 0}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

// Capacity is reserved for the pod, and then it can't be planned for any more: its volume is gone, say, or an annotation is wrong.
// Nothing else would tell the ledger, and the instance could never be ended.
func TestPodThatCantBePlannedForAnyMoreGivesItsRoomBack(t *testing.T) {
	for name, pinned := range map[string]bool{"pinned": true, "let go": false} {
		t.Run(name, func(t *testing.T) {
			c := clocktesting.NewFakeClock(time.Unix(1_000_000, 0))
			w := &world{T: t, clock: c, reservations: reservations.New(c)}
			p := pod()
			w.class, _ = w.Class(p)
			w.plan(p)
			w.nodeThere()
			if pinned {
				w.cycle(p)
			}
			if w.reservations.Fence("node") {
				t.Fatal("no room is kept for the pod")
			}
			contradicting(p)
			plugin := &Provision{args: &Args{}, demand: w, class: w}
			if _, status := plugin.PostFilter(t.Context(), nil, p, framework.NewDefaultNodeToStatus()); status.Code() != fwk.Unschedulable {
				t.Errorf("the pod is told %v", status)
			}
			if !w.reservations.Fence("node") {
				t.Error("room is still kept for the pod")
			}
			if w.reservations.Knows(p.UID) {
				t.Error("the pod is still demand")
			}
		})
	}
}

// namedHandle is all that a factory may use at this point.
type namedHandle struct{ fwk.Handle }

func (namedHandle) ProfileName() string { return "ours" }

func TestNewNamesTheProfile(t *testing.T) {
	w := &world{T: t}
	classifiers := 0
	factory := New(w, func(fwk.Handle) Classifier { classifiers++; return w })
	if _, err := factory(t.Context(), &runtime.Unknown{Raw: []byte(`{"clusterName":"a","clutser":"b"}`)}, namedHandle{}); err == nil {
		t.Error("a misspelt field was accepted")
	} else if want := `profile "ours": Provision arguments: unknown field "clutser"`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
	if classifiers != 0 {
		t.Error("a classifier was made for a profile that is not to be")
	}
	plugin, err := factory(t.Context(), &runtime.Unknown{Raw: []byte(`{"clusterName":"a"}`)}, namedHandle{})
	if err != nil {
		t.Fatal(err)
	}
	if plugin.Name() != Name || classifiers != 1 {
		t.Errorf("plugin %q with %d classifiers, want %q with one", plugin.Name(), classifiers, Name)
	}
}

// statuses are what the filters report for nodes.
type statuses map[string]*fwk.Status

func (s statuses) Get(node string) *fwk.Status {
	if status := s[node]; status != nil {
		return status
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "")
}

func (s statuses) NodesForStatusCode(fwk.NodeInfoLister, fwk.Code) ([]fwk.NodeInfo, error) {
	return nil, nil
}

// It is recorded which filter rejects a pod on the node that was launched for it: pods that another filter rejects fail for another
// reason.
func TestTheFilterThatRefusesAPodOnItsNodeIsNamed(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	w := &world{T: t, clock: c, reservations: reservations.New(c)}
	p := pod()
	class, err := w.Class(p)
	if err != nil {
		t.Fatal(err)
	}
	w.class = class
	w.plan(p)
	w.nodeThere()
	w.cycle(p)
	plugin := &Provision{args: &Args{}, demand: w, class: w}
	picky := fwk.NewStatus(fwk.Unschedulable, "not this one").WithPlugin("Picky")
	plugin.PostFilter(t.Context(), nil, p, statuses{"node": picky})
	var got []ledger.Rejected
	w.step(func(l *ledger.Ledger, _ time.Time) { got = l.TakeRejected() })
	if len(got) != 1 || got[0].Plugin != "Picky" || got[0].Reason != "not this one" {
		t.Errorf("rejected: %+v", got)
	}
}
