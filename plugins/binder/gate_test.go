package binder

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// gate returns the gate in front of a ledger, which is the world's own or one that checks what it is asked.
func (w *world) gate(l GateLedger) *Gate {
	return &Gate{ledger: l, class: classifier{}, waiting: &waits{}}
}

// waits records the pods that the gate keeps out.
type waits []string

func (ws *waits) Add(pod *corev1.Pod) { *ws = append(*ws, pod.Name) }

// anticipate plans capacity for a pod, and for the next pod of its controller, on a node that is being launched.
func (w *world) anticipate(claim string, p *corev1.Pod) {
	w.Helper()
	w.submit(p)
	c := mustClass(w.T, p)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.AddNode(claim, &capacity.Node{}, nil, true, now)
		l.Commit(claim, []capacity.Placement{{Class: c, Pod: refOf(p), Node: claim}, {Class: c, Owner: "app", Node: claim}}, now)
	})
}

func deleting(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(metav1.Now()) }
func bound(p *corev1.Pod)    { p.Spec.NodeName = "elsewhere" }
func ended(p *corev1.Pod)    { p.Status.Phase = corev1.PodFailed }
func heldBack(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} }
func ofAnother(p *corev1.Pod) {
	p.OwnerReferences[0].UID = "other"
}

// A pod for which capacity was reserved before it existed takes it before its first scheduling cycle.
func TestAnticipatedPods(t *testing.T) {
	for _, tc := range []struct {
		name   string
		pod    *corev1.Pod
		before func(w *world)
		closed bool
		node   string // on which it is pinned
		knows  bool
	}{
		{name: "its node is being launched", pod: pod("next"), closed: true, knows: true},
		{name: "its node is there", pod: pod("next"), before: func(w *world) { w.appear("claim", "node", ledger.NodeStatus{Managed: true}) }, node: "node", knows: true},
		{name: "another took it", pod: pod("next"), before: func(w *world) { w.reservations.Adopt(refOf(pod("quick")), mustClass(w.T, pod("quick"))) }},
		{name: "it took it before", pod: pod("next"), before: func(w *world) { w.reservations.Adopt(refOf(pod("next")), mustClass(w.T, pod("next"))) }, closed: true, knows: true},
		{name: "it is larger", pod: pod("next", cpu("2"))},
		{name: "it belongs to another controller", pod: pod("next", ofAnother)},
		{name: "it has no controller", pod: pod("next", orphan)},
		{name: "it is a DaemonSet's", pod: pod("next", daemon)},
		{name: "it can't be planned for", pod: pod("next", typo)},
		{name: "it is being deleted", pod: pod("next", deleting)},
		{name: "it is bound", pod: pod("next", bound)},
		{name: "it has ended", pod: pod("next", ended)},
		{name: "a scheduling gate holds it back", pod: pod("next", heldBack)},
		{name: "it is gone, and the queue hasn't heard it", pod: pod("next"), before: func(w *world) { w.reservations.Forget("next", true) }},
		{name: "it has just been given a node", pod: pod("next"), before: func(w *world) {
			if err := w.reservations.Assume("next", "elsewhere", false); err != nil {
				w.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.anticipate("claim", pod("web"))
			if tc.before != nil {
				tc.before(w)
			}
			g := w.gate(w.reservations)
			for range 2 { // the queue asks again after each change of the pod
				if s := g.PreEnqueue(t.Context(), tc.pod); s.IsSuccess() == tc.closed {
					t.Errorf("answer %v, its gate should be closed: %t", s, tc.closed)
				}
			}
			if knows := w.reservations.Knows("next"); knows != tc.knows {
				t.Errorf("the ledger has the pod: %t, want %t", knows, tc.knows)
			}
			if waiting := slices.Contains(*g.waiting.(*waits), "next"); waiting != tc.closed {
				t.Errorf("told that it waits: %t, want %t", waiting, tc.closed)
			}
			if tc.closed || !tc.knows {
				return
			}
			if node, why := w.reservations.Pin("next"); node != tc.node {
				t.Errorf("pinned to %q (%s), want %q", node, why, tc.node)
			}
		})
	}
}

// The gate of a pod that was adopted opens when its node is there, and when it is given capacity that has become free elsewhere.
func TestGatesOfAnticipatedPodsOpen(t *testing.T) {
	for name, open := range map[string]func(w *world){
		"its node is there": func(w *world) { w.appear("claim", "node", ledger.NodeStatus{Managed: true}) },
		"room appears": func(w *world) {
			w.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
				var placements []capacity.Placement
				for _, waiting := range l.Releasable(true) {
					if waiting.Ref.Name == "next" {
						placements = append(placements, capacity.Placement{Class: waiting.Class, Pod: waiting.Ref, Node: "old"})
					}
				}
				l.Existing("old", ledger.NodeStatus{})
				l.Reassign(placements, true)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.anticipate("claim", pod("web"))
			w.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Gone("web") }) // it would be given the capacity first
			g := w.gate(w.reservations)
			if s := g.PreEnqueue(t.Context(), pod("next")); s.IsSuccess() {
				t.Fatal("the pod is let in before its node is there")
			}
			w.reservations.Take()
			open(w)
			if e := w.reservations.Take(); len(e.Activate) != 1 || e.Activate[0].UID != "next" {
				t.Errorf("activated %v", e.Activate)
			}
			if s := g.PreEnqueue(t.Context(), pod("next")); !s.IsSuccess() {
				t.Errorf("the gate is closed: %v", s)
			}
		})
	}
}

// Where nothing is reserved for a pod's controller, the gate asks the ledger one question and computes no class.
func TestPodsWithoutReservationsPassAtOnce(t *testing.T) {
	w := newWorld(t)
	g := &Gate{ledger: barren{GateLedger: w.reservations, T: t}, class: unclassified{t}, waiting: &waits{}}
	for _, history := range []func(){func() {}, func() { w.anticipate("claim", pod("web")) }} {
		history()
		for _, p := range []*corev1.Pod{pod("stranger", ofAnother), pod("alone", orphan)} {
			if s := g.PreEnqueue(t.Context(), p); !s.IsSuccess() {
				t.Errorf("pod %s: %v", p.Name, s)
			}
		}
	}
}

// barren is a ledger in which no capacity may be sought.
type barren struct {
	GateLedger
	*testing.T
}

func (c barren) Adopt(ref capacity.PodRef, _ *capacity.Class) bool {
	c.Errorf("capacity is sought for pod %s", ref.Name)
	return false
}

// unclassified is a classifier that must not be asked.
type unclassified struct{ *testing.T }

func (u unclassified) Class(pod *corev1.Pod) (*capacity.Class, error) {
	u.Errorf("the class of pod %s is computed", pod.Name)
	return nil, errors.New("no class")
}
