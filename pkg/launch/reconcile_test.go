package launch

import (
	"reflect"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

func (w *world) knows(uid types.UID) bool {
	return w.pending.Get(uid) != nil || w.reservations.Knows(uid)
}

// A StatefulSet's pod is deleted and created again under its name while the watch is interrupted: informers report both as one update.
func TestPodThatWasReplacedIsNoDemandAnyMore(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.submit(2)
	old, made := w.pod(0), w.pod(0)
	made.UID = "again"
	w.pending.Handler().OnUpdate(old, made)
	if w.knows(old.UID) {
		t.Error("the pod that is gone is remembered")
	}
	if w.pending.Get("again") == nil {
		t.Error("the pod that came instead is not known")
	}
	if n := w.pending.created("rs"); n != 2 {
		t.Errorf("its owner has %d pods, want 2", n)
	}
	waiting, _ := w.parts.gatherer.gather(t.Context())
	for _, p := range waiting {
		if p.Ref.UID == old.UID {
			t.Error("the pod that is gone is planned for")
		}
	}
	if len(waiting) != 2 {
		t.Errorf("%d pods are planned for, want 2", len(waiting))
	}
}

// A bound pod that is replaced leaves its node, which then has free capacity.
func TestBoundPodThatWasReplacedMakesRoom(t *testing.T) {
	w := newWorld(t)
	w.build()
	rooms := 0
	w.pending.onRoom = func() { rooms++ }
	old, made := w.pod(0), w.pod(0)
	old.Spec.NodeName, made.UID = "n", "again"
	h := w.pending.Handler()
	h.OnAdd(old, true)
	h.OnUpdate(old, made)
	if rooms != 1 || w.pending.Get("again") == nil {
		t.Errorf("room was made %d times, the new pod is known: %t", rooms, w.pending.Get("again") != nil)
	}
}

// The replacing Node is another instance's: no gate may open for the one that was reserved.
func TestNodeThatWasReplacedHasGone(t *testing.T) {
	w := newWorld(t)
	w.build()
	node := func(uid types.UID, id string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: uid, Labels: map[string]string{labelPool: "pool"}}}
		n.Spec.ProviderID = id
		return n
	}
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.AddNode("c", &capacity.Node{}, nil, true, now) })
	w.parts.Nodes.named("c", "n", "aws:///a/i-1")
	old := node("1", "aws:///a/i-1")
	cached := func() (yes bool) {
		w.reservations.read(func(l *ledger.Ledger) { yes = l.InFlight()[0].Cached })
		return yes
	}
	w.parts.Nodes.NodeChanged(nil, old)
	if !cached() {
		t.Fatal("the claim's Node is there, and the ledger doesn't know")
	}
	w.parts.Nodes.NodeChanged(old, node("2", "aws:///a/i-2"))
	if cached() {
		t.Error("the claim's Node has gone, and the ledger doesn't know")
	}
}

func TestWhatWasReplacedHasGoneAndCome(t *testing.T) {
	old := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "1", Generation: 1}}
	made := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs", UID: "2", Generation: 1}}
	var got [][2]any
	handlerOf(func(before, now any) { got = append(got, [2]any{before, now}) }).OnUpdate(old, made)
	if want := [][2]any{{old, nil}, {nil, made}}; !reflect.DeepEqual(got, want) {
		t.Errorf("observed %v, want %v", got, want)
	}
}

// Whatever has made Pending miss a pod's end, reconcile finds it.
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
			w := newWorld(t)
			w.build()
			index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			w.pending.CompareWith(listersv1.NewPodLister(index))
			w.submit(1)
			if pod := tc.is(w.pod(0)); pod != nil {
				if err := index.Add(pod); err != nil {
					t.Fatal(err)
				}
			}
			w.pending.reconcile()
			if knows := w.knows("u0"); knows == tc.forgets {
				t.Errorf("remembered: %t", knows)
			}
			if tc.forgets != w.reservations.Idle() {
				t.Errorf("the ledger is empty: %t", w.reservations.Idle())
			}
		})
	}
}

// Each call is short, and in the end all pods are compared.
func TestReconciliationComesToAllPods(t *testing.T) {
	w := newWorld(t)
	w.build()
	const n = 6 * reconcileAtOnce
	w.submit(n)
	w.pending.CompareWith(listersv1.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})))
	w.pending.reconcile()
	if left := len(w.pending.all()); left < n-3*reconcileAtOnce {
		t.Errorf("%d of %d pods are left after one look", left, n)
	}
	for range 100 {
		w.pending.reconcile()
	}
	if left := len(w.pending.all()); left > 0 || !w.reservations.Idle() {
		t.Errorf("%d pods are left, the ledger is empty: %t", left, w.reservations.Idle())
	}
}

// A scheduling cycle that was running when its pod was deleted computes the class once more.
func TestClassesOfPodsThatHaveGoneAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.build()
	index := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	p := w.pending
	p.CompareWith(listersv1.NewPodLister(index))
	h := p.Handler()
	const n = 1000
	for i := range n {
		pod := w.pod(i)
		h.OnAdd(pod, false)
		if i%2 == 0 {
			if err := index.Add(pod); err != nil {
				t.Fatal(err)
			}
		} else {
			h.OnDelete(pod)
		}
		if _, err := p.classes.Class(pod); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		p.reconcile()
	}
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	if got := len(p.classes.byPod); got != n/2 {
		t.Errorf("%d classes are remembered, want %d", got, n/2)
	}
}
