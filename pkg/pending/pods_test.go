package pending

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// queue is the pending pods of scheduler s, with an empty ledger.
type queue struct{ *Pods }

func newQueue(cfg Config) queue {
	cfg.Schedulers = []string{"s"}
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	return queue{New(cfg, reservations.New(testingclock.NewFakePassiveClock(time.Now())), NewClasses(f))}
}

// submit does what the scheduler does with pods that fit nowhere.
func (q queue) submit(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		pod := unscheduled(i)
		q.observe(nil, pod)
		class, err := q.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		q.reservations.Submit(capacity.RefOf(pod), class)
	}
}

func (q queue) knows(uid types.UID) bool { return q.Get(uid) != nil || q.reservations.Knows(uid) }

// notes are the events that pods have got.
type notes []string

func (n *notes) Pod(ref capacity.PodRef, _, reason, note string) {
	*n = append(*n, ref.Name+" "+reason+" "+note)
}

// unscheduled returns a pod of scheduler s, one of those of a ReplicaSet.
func unscheduled(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{SchedulerName: "s", Tolerations: admitted(), Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
}

// admitted returns the tolerations that the API server's admission adds to pods.
func admitted() []corev1.Toleration {
	return []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}}
}

// The scheduler may have a pod whose last gate is gone, and capacity may be reserved for it, while Pods still hears that the pod has gates.
func TestLateEventsOfGatesEndNoReservation(t *testing.T) {
	p := newQueue(Config{})
	pod := unscheduled(0)
	class, err := p.Classes.Class(pod)
	if err != nil {
		t.Fatal(err)
	}
	p.reservations.Submit(capacity.RefOf(pod), class)
	gated := unscheduled(0)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	h := p.Handler()
	h.OnAdd(gated, false)
	if !p.reservations.Knows(pod.UID) || p.Get(pod.UID) != nil {
		t.Error("a pod with gates is pending, or the ledger has lost it")
	}
	h.OnUpdate(gated, pod)
	if !p.reservations.Knows(pod.UID) || p.Get(pod.UID) == nil {
		t.Error("the pod is not pending, or the ledger has lost it")
	}
}

// A bound pod that is replaced leaves its node, which then has free capacity.
func TestBoundPodThatWasReplacedMakesRoom(t *testing.T) {
	p := newQueue(Config{})
	rooms := 0
	p.OnPodLeft(func() { rooms++ })
	old, made := unscheduled(0), unscheduled(0)
	old.Spec.NodeName, made.UID = "n", "again"
	h := p.Handler()
	h.OnAdd(old, true)
	h.OnUpdate(old, made)
	if rooms != 1 || p.Get("again") == nil {
		t.Errorf("room was made %d times, the new pod is known: %t", rooms, p.Get("again") != nil)
	}
}

// A bound pod that is resized downwards in place makes room once the kubelet has resized it.
func TestBoundPodThatShrinksMakesRoom(t *testing.T) {
	p := newQueue(Config{})
	rooms := 0
	p.OnPodLeft(func() { rooms++ })
	cpu := func(q string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(q)}
	}
	pod := unscheduled(0)
	pod.Spec.NodeName, pod.Spec.Containers[0].Name = "n", "c"
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", AllocatedResources: cpu("1"), Resources: &corev1.ResourceRequirements{Requests: cpu("1")}}}
	h := p.Handler()
	h.OnAdd(pod, true)
	for _, step := range []struct {
		name   string
		change func(pod *corev1.Pod)
		want   int
	}{
		{"its readiness changes", func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Ready = true }, 0},
		{"less is asked for", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = cpu("250m") }, 0},
		{"the kubelet has agreed", func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].AllocatedResources = cpu("250m") }, 0},
		{"it is done", func(pod *corev1.Pod) { pod.Status.ContainerStatuses[0].Resources.Requests = cpu("250m") }, 1},
		{"more is asked for", func(pod *corev1.Pod) { pod.Spec.Containers[0].Resources.Requests = cpu("500m") }, 1},
	} {
		next := pod.DeepCopy()
		step.change(next)
		h.OnUpdate(pod, next)
		if pod = next; rooms != step.want {
			t.Fatalf("%s: room was made %d times, want %d", step.name, rooms, step.want)
		}
	}
}

// Whatever has made Pods miss a pod's end, reconcile finds it.
func TestPodsNobodyHasAreForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		is      func(pod *corev1.Pod) *corev1.Pod // nil: deleted
		forgets bool
	}{
		"waits":            {is: func(p *corev1.Pod) *corev1.Pod { return p }},
		"gone":             {is: func(*corev1.Pod) *corev1.Pod { return nil }, forgets: true},
		"another one":      {is: func(p *corev1.Pod) *corev1.Pod { p.UID = "another"; return p }, forgets: true},
		"bound":            {is: func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = "n"; return p }, forgets: true},
		"ended":            {is: func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodFailed; return p }, forgets: true},
		"is being deleted": {is: func(p *corev1.Pod) *corev1.Pod { p.DeletionTimestamp = &metav1.Time{}; return p }, forgets: true},
	} {
		t.Run(name, func(t *testing.T) {
			index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			p := newQueue(Config{Lister: listersv1.NewPodLister(index)})
			p.submit(t, 1)
			if pod := tc.is(unscheduled(0)); pod != nil {
				if err := index.Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			p.Reconcile()
			if knows := p.knows("u0"); knows == tc.forgets {
				t.Errorf("remembered: %t", knows)
			}
			if tc.forgets != p.reservations.Idle() {
				t.Errorf("the ledger is empty: %t", p.reservations.Idle())
			}
		})
	}
}

// Each call is short, and in the end all pods are compared.
func TestReconciliationComesToAllPods(t *testing.T) {
	p := newQueue(Config{Lister: listersv1.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))})
	const n = 6 * reconcileAtOnce
	p.submit(t, n)
	p.Reconcile()
	if left := len(p.All()); left < n-3*reconcileAtOnce {
		t.Errorf("%d of %d pods are left after one look", left, n)
	}
	for range 100 {
		p.Reconcile()
	}
	if left := len(p.All()); left > 0 || !p.reservations.Idle() {
		t.Errorf("%d pods are left, the ledger is empty: %t", left, p.reservations.Idle())
	}
}

// A scheduling cycle that was running when its pod was deleted computes the class once more.
func TestClassesOfPodsThatHaveGoneAreForgotten(t *testing.T) {
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	p := newQueue(Config{Lister: listersv1.NewPodLister(index)})
	h := p.Handler()
	const n = 1000
	for i := range n {
		pod := unscheduled(i)
		h.OnAdd(pod, false)
		if i%2 == 0 {
			if err := index.Add(pod); err != nil {
				t.Fatal(err)
			}
		} else {
			h.OnDelete(pod)
		}
		if _, err := p.Classes.Class(pod); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		p.Reconcile()
	}
	p.Classes.mu.Lock()
	defer p.Classes.mu.Unlock()
	if got := len(p.Classes.byPod); got != n/2 {
		t.Errorf("%d classes are remembered, want %d", got, n/2)
	}
}

// The successor of a pod is of the class that it will have as a pending pod.
func TestSuccessorsAreOfTheSameClass(t *testing.T) {
	c := newQueue(Config{}).Classes
	c.SetEarliest("s", capacity.BindInitialized)
	pod := unscheduled(0)
	now, _ := c.Class(pod)
	_, next, _ := c.Successor(pod)
	if now.Key != next.Key || now.Bind != next.Bind {
		t.Errorf("pod: key %s, bound at %v; its successor: key %s, bound at %v", now.Key, now.Bind, next.Key, next.Bind)
	}
}

// A pod of another scheduler that can't be planned for gets one event that says why: its own scheduler can't tell.
func TestPodsOfOthersHearWhyNothingIsBuilt(t *testing.T) {
	var said notes
	p := newQueue(Config{Others: []string{"theirs"}, Events: &said})
	pod := unscheduled(0)
	pod.Spec.SchedulerName = "theirs"
	pod.Spec.NodeSelector = map[string]string{corev1.LabelArchStable: "arm64"}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}}}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	if _, err := p.Classes.Class(pod); err == nil {
		t.Fatal("the pod can be planned for")
	}
	p.observe(nil, pod)
	p.observe(pod, pod.DeepCopy())
	if len(said) != 1 || !p.reservations.Idle() {
		t.Errorf("said %q, the ledger is empty: %t", said, p.reservations.Idle())
	}
}
