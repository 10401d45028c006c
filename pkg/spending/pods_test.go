package spending

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// A controller may never make the pods that capacity was launched ahead for. None is launched ahead for it again for an hour.
func TestCapacityAheadOfPodsThatDoNotCome(t *testing.T) {
	p := newPurse(t, Config{})
	pod := p.pod("p", "")
	p.buys("for-a-pod", pod)
	p.Emptied("for-a-pod")
	if p.Unfulfilled(pod) {
		t.Error("a machine for a pod that is known counts as one for pods that did not come")
	}
	p.buys("ahead")
	p.Emptied("ahead")
	if !p.Unfulfilled(pod) {
		t.Error("more would be launched ahead at once")
	}
	p.passes(time.Hour)
	if p.Unfulfilled(pod) {
		t.Error("nothing is launched ahead any more an hour later")
	}
}

// Each of many Jobs of one owner wants one pod. Some that are thrown off are few of the owner's.
func TestPodsOfManyControllersAreCountedTogether(t *testing.T) {
	p := newPurse(t, Config{})
	for i := range 20 {
		p.buys(fmt.Sprint("c", i), p.pod(fmt.Sprint("p", i), ""))
	}
	for i := range 3 {
		pod := p.pod(fmt.Sprint("p", i), "", func(pod *corev1.Pod) {
			pod.OwnerReferences[0].Kind, pod.OwnerReferences[0].APIVersion = "Job", "batch/v1"
		})
		p.mu.Lock()
		p.state.throw(p.state.instances.byClaim[fmt.Sprint("c", i)], web, pod, &guard.Fault{Cause: causePreempted}, p.clock.Now())
		p.mu.Unlock()
	}
	if got := len(p.state.breakers.Breakers()); got != 0 {
		t.Errorf("%d breakers after three pods of twenty were preempted", got)
	}
}

// Each new node also gets a pod of another workload, and the filters refuse the pod it was bought for, again and again.
func TestRefusedBesideOtherPods(t *testing.T) {
	p := newPurse(t, Config{})
	a := p.pod("a", "")
	bought := 0
	for p.state.breakers.HoldsPods("pool", web, p.clock.Now()) == nil && bought < 20 {
		name := fmt.Sprint("m", bought)
		p.buys(name, a)
		q := p.pod(fmt.Sprint("q", bought), "node-"+name, phase(corev1.PodRunning))
		q.OwnerReferences[0].Name = "other"
		p.podChanged(q, false)
		p.passes(30 * time.Second)
		p.RejectedByFilters(name, a, "", "Insufficient cpu", false)
		p.passes(4 * time.Minute)
		bought++
	}
	if bought > 4 {
		t.Errorf("%d machines were bought for one pod that the filters refuse on each", bought)
	}
}

// So it is with pods of a higher priority, which may take what is reserved for others: whatever the reason, it isn't bought for without end.
func TestRefusedBesidePodsOfHigherPriority(t *testing.T) {
	p := newPurse(t, Config{})
	of := func(n int32) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.Priority = &n } }
	a := p.pod("a", "", of(5))
	for i := range 6 {
		claim := fmt.Sprint("m", i)
		p.buys(claim, a)
		q := p.pod(fmt.Sprint("q", i), "node-"+claim, phase(corev1.PodRunning), of(10))
		q.OwnerReferences[0].Name = "other"
		p.seen["node-"+claim] = []*corev1.Pod{q}
		p.podChanged(q, false)
		p.passes(30 * time.Second)
		p.RejectedByFilters(claim, a, "NodeResourcesFit", "Insufficient cpu", true)
		p.passes(4 * time.Minute)
	}
	if p.state.breakers.HoldsPods("pool", web, p.clock.Now()) == nil {
		t.Error("launches are not held")
	}
}

// A driver never publishes what a pod needs, and each node that is bought for it serves a pod of another workload: nothing is thrown off, and no node
// is given back empty.
func TestWaitedInVainBesideOtherPods(t *testing.T) {
	p := newPurse(t, Config{})
	a := p.pod("a", "")
	p.buys("m", a)
	q := p.pod("q", "node-m", phase(corev1.PodRunning))
	q.OwnerReferences[0].Name = "other"
	p.podChanged(q, false)
	p.passes(25 * time.Minute)
	if !p.Served("m") {
		t.Fatal("the other pod doesn't count")
	}
	p.Fail("m", WaitedInVain(p.WorkloadOf(a), "no devices have been published"))
	if p.state.breakers.HoldsPods("pool", web, p.clock.Now()) == nil {
		t.Error("the next node would be bought at once")
	}
	if p.state.breakers.HoldsPods("pool", p.WorkloadOf(q), p.clock.Now()) != nil {
		t.Error("the other workload has to wait, too")
	}
}

// A process that doesn't lead forgets workloads, too.
func TestMovesAreForgotten(t *testing.T) {
	p := newPurse(t, Config{})
	handler := p.Pods()
	for i := range 10 {
		pod := p.pod("p", "node")
		pod.OwnerReferences[0].Name = fmt.Sprint("job-", i)
		handler.OnDelete(pod)
		p.clock.Step(movedFor)
	}
	if n := len(p.state.recent.moved); n > 2 {
		t.Errorf("%d workloads are remembered", n)
	}
}

// Whether the machine still matters to the guard or not, a pod that a kubelet of ours does not admit is counted and told, once.
func TestRejectedPodsAreCounted(t *testing.T) {
	p := newPurse(t, Config{})
	handler := p.Pods()
	failed := func(reason string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, reason, "Node didn't have\nenough memory"
		}
	}
	was, is := p.pod("p", "node-old", phase(corev1.PodPending)), p.pod("p", "node-old", failed("OutOfmemory"))
	if handler.OnUpdate(was, is); len(p.told) > 0 {
		t.Errorf("a process that doesn't lead told %q", p.told)
	}
	p.Tend(t.Context(), reservations.New(p.clock))
	for _, tc := range []struct {
		node   string
		before func(*corev1.Pod)
		now    func(*corev1.Pod)
		want   string
	}{
		{"node-old", phase(corev1.PodPending), failed("OutOfmemory"), "pool PodRejected the kubelet of node node-old rejected pod d/p: OutOfmemory: Node didn't have; enough memory"},
		{"node-old", failed("OutOfmemory"), failed("OutOfmemory"), ""},
		{"node-old", phase(corev1.PodRunning), phase(corev1.PodFailed), ""},
		{"theirs", phase(corev1.PodPending), failed("OutOfmemory"), ""},
	} {
		p.told = nil
		handler.OnUpdate(p.pod("p", tc.node, tc.before), p.pod("p", tc.node, tc.now))
		if got := strings.Join(p.told, "; "); got != tc.want {
			t.Errorf("told %q, want %q", got, tc.want)
		}
	}
}
