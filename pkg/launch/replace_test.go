package launch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// fullNode returns a node that existed before, full of n pods, and these pods.
func (w *world) fullNode(n int) (string, []*corev1.Pod) {
	const name = "old"
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[name] = &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelPool: "pool", labelInitialized: "true"}},
		Status:     corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI)}},
	}
	var pods []*corev1.Pod
	for i := range n {
		pod := w.pod(1000 + i)
		pod.Spec.NodeName = name
		w.bound[pod.UID] = name
		pods = append(pods, pod)
	}
	return name, pods
}

// asked requests replacement capacity until a try has been made and the world looks as wanted.
func (w *world) asked(node string, pods []*corev1.Pod, what string, ok func() bool) (ready bool, why error) {
	w.t.Helper()
	_, _ = w.parts.Replacements.Replace(node, pods, nil)
	w.until(what, ok)
	return w.parts.Replacements.Replace(node, pods, nil)
}

// up initializes all nodes of claims.
func (w *world) up() {
	w.mu.Lock()
	var nodes []*corev1.Node
	for name, n := range w.nodes {
		n = n.DeepCopy()
		n.Labels[labelRegistered], n.Labels[labelInitialized] = "true", "true"
		w.nodes[name] = n
		nodes = append(nodes, n)
	}
	w.mu.Unlock()
	for _, n := range nodes {
		w.parts.Nodes.NodeCached(n)
	}
}

// evict ends a pod and lets its controller create another, which takes what is reserved for it at the gate.
func (w *world) evict(pod *corev1.Pod) {
	w.mu.Lock()
	delete(w.bound, pod.UID)
	w.mu.Unlock()
	next := pod.DeepCopy()
	next.Name, next.UID, next.Spec.NodeName = pod.Name+"x", pod.UID+"x", ""
	w.pending.Handler().OnAdd(next, false)
	if class, err := w.pending.Classes.Class(next); err == nil {
		w.reservations.Adopt(capacity.RefOf(next), class)
	}
}

func TestRoomIsMadeBeforeANodeGoes(t *testing.T) {
	w := newWorld(t)
	w.run()
	old, pods := w.fullNode(6)
	w.reservations.Fence(old)
	ready, why := w.asked(old, pods, "two nodes for six pods", func() bool { return len(w.nodes) == 3 })
	if ready || why != nil {
		t.Fatalf("ready %v (%v) though the new nodes are booting", ready, why)
	}
	w.up()
	if ready, why = w.parts.Replacements.Replace(old, pods, nil); !ready {
		t.Fatalf("not ready though the new nodes are up: %v", why)
	}
	for i, pod := range pods {
		w.evict(pod)
		w.parts.Replacements.Keep(old)
		w.until(fmt.Sprint("successor ", i, " bound elsewhere"), func() bool { return w.bound[pod.UID+"x"] != "" && w.bound[pod.UID+"x"] != old })
	}
	if n := len(w.instances); n != 2 {
		t.Errorf("%d instances, want 2: nothing more was needed", n)
	}
	w.parts.Replacements.Forget(old)
}

// Existing free capacity is used, and nothing bought.
func TestRoomThatIsThere(t *testing.T) {
	w := newWorld(t)
	w.nodes["free"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "free", Labels: map[string]string{}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}}
	w.build()
	old, pods := w.fullNode(2)
	w.reservations.Fence(old)
	if ready, _ := w.parts.Replacements.Replace(old, pods, nil); ready {
		t.Fatal("ready before anything was planned")
	}
	w.parts.plans.Relocation.Relocate(t.Context())
	if ready, why := w.parts.Replacements.Replace(old, pods, nil); !ready {
		t.Errorf("not ready: %v", why)
	}
	if len(w.claims) > 0 {
		t.Error("something was launched")
	}
	if w.reservations.Fence("free") {
		t.Error("the node that the pods will come to can be ended")
	}
	w.parts.Replacements.Forget(old)
	if !w.reservations.Fence("free") {
		t.Error("room that nobody needs any more is kept")
	}
}

// Nothing is planned on a node that will be removed soon, whatever that would save.
func TestRoomThatIsSoonGone(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"brief", "lasting"} {
		w.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}}
	}
	w.build()
	old, pods := w.fullNode(2)
	w.reservations.Fence(old)
	_, _ = w.parts.Replacements.Replace(old, pods, []string{"brief", old})
	w.parts.plans.Relocation.Relocate(t.Context())
	if ready, why := w.parts.Replacements.Replace(old, pods, []string{"brief", old}); !ready {
		t.Errorf("not ready: %v", why)
	}
	if len(w.claims) > 0 {
		t.Error("something was launched")
	}
	if !w.reservations.Fence("brief") || w.reservations.Fence("lasting") {
		t.Error("the room is not on the node that stays")
	}
}

// counting is a plain planner that counts its plans.
type counting struct{ plans int }

func (c *counting) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	c.plans++
	return plain{}.Plan(v, opts)
}

// What can't be bought is reported, and tried again a few times, later each time.
func TestRoomThatCantBeHad(t *testing.T) {
	w := newWorld(t)
	w.capacity["large"], w.capacity["small"] = 0, 0
	clock, planner := testingclock.NewFakeClock(time.Now()), &counting{}
	w.clock, w.planner = clock, planner
	w.build()
	old, pods := w.fullNode(2)
	w.reservations.Fence(old)
	var tries []time.Duration
	begin := clock.Now()
	for range 600 {
		ready, why := w.parts.Replacements.Replace(old, pods, nil)
		if ready || len(tries) > 0 && (why == nil || !strings.Contains(why.Error(), "no offer")) {
			t.Fatalf("ready %v, reason %v", ready, why)
		}
		before := planner.plans
		w.parts.plans.Relocation.Relocate(t.Context())
		if planner.plans > before {
			tries = append(tries, clock.Since(begin))
		}
		clock.Step(time.Second)
	}
	if diff := cmp.Diff([]time.Duration{0, 15 * time.Second, 45 * time.Second, 105 * time.Second}, tries); diff != "" {
		t.Errorf("tried after (-want +got):\n%s", diff)
	}
	if len(w.claims) > 0 {
		t.Error("claims are left")
	}
}

// While a node is drained its pods seem to lack capacity, because their successors use up the reservations. Replace is not called then, so
// nothing is planned.
func TestNothingIsPlannedWhileDraining(t *testing.T) {
	w := newWorld(t)
	w.build()
	old, pods := w.fullNode(2)
	w.reservations.Fence(old)
	_, _ = w.parts.Replacements.Replace(old, pods, nil)
	w.parts.plans.Relocation.Relocate(t.Context())
	w.until("a node", func() bool { return len(w.nodes) == 2 })
	w.parts.Replacements.Keep(old)
	w.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Release(old) })
	w.parts.plans.Relocation.Relocate(t.Context())
	if held, _ := w.held(old); len(held) > 0 {
		t.Errorf("planned for %v", held)
	}
}

func (w *world) held(node string) (held map[ledger.Successor]int, up int) {
	w.reservations.Read(func(l ledger.Reader) { held, up = l.Held(node) })
	return held, up
}
