package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func TestConsistency(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	for _, tc := range []struct {
		name string
		have corev1.ResourceList
		want string // the condition's message; empty: consistent
	}{
		{name: "as bought", have: list("8", "32Gi")},
		{name: "more than that", have: list("16", "64Gi")},
		{name: "a little less, as memory always is", have: list("8", "30Gi")},
		{name: "clearly less", have: list("4", "32Gi"), want: "the node has less than was bought: cpu 4 instead of 8"},
		{name: "nothing of it", have: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}, want: "the node has less than was bought: memory 0 instead of 32Gi"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.launched("a", func(c *karpv1.NodeClaim) {
				c.Spec.Resources.Requests = list("1", "1Gi")
				c.Status.Capacity = list("8", "32Gi")
				c.Status.Capacity["vpc.amazonaws.com/pod-eni"] = resource.MustParse("4") // not requested
			})
			w.createNode(nodeFor(w.claim("a"), *w.cloud.instances["i-a"]))
			w.kubelet("ip-10-0-0-1")
			w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Capacity, n.Status.Allocatable = tc.have, list("4", "16Gi") })
			w.step()
			cond := condition(w.claim("a"), karpv1.ConditionTypeConsistentStateFound)
			if tc.want == "" {
				if cond == nil || cond.Status != metav1.ConditionTrue {
					t.Errorf("condition %+v", cond)
				}
				return
			}
			if cond == nil || cond.Status != metav1.ConditionFalse || cond.Message != tc.want {
				t.Errorf("condition %+v, want %q", cond, tc.want)
			}
			w.pass(time.Hour, 10*time.Minute)
			if n := strings.Count(strings.Join(w.events, "\n"), "a Warning FailedConsistencyCheck"); n != 1 {
				t.Errorf("%d events %q, want one", n, w.events)
			}
			w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Capacity = list("8", "32Gi") })
			w.pass(checkEvery, checkEvery)
			if !conditionTrue(w.claim("a"), karpv1.ConditionTypeConsistentStateFound) {
				t.Error("stays inconsistent")
			}
		})
	}
}

// A node that registers and never becomes what it was bought for doesn't stay for ever.
func TestInitializationDeadline(t *testing.T) {
	notReady := func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }
	tainted := func(n *corev1.Node) { setTaint(n, taint("readiness.k8s.io/cni", "NoSchedule")) }
	for _, tc := range []struct {
		name   string
		change func(*corev1.Node)
		pod    bool
		ends   bool
		event  string
	}{
		{name: "never Ready", change: notReady, ends: true, event: "a Warning InitializationTimeout: giving up NodeClaim a: not initialized within 15m0s of its registration: the node is not Ready"},
		{name: "never Ready, with pods that wait there", change: notReady, pod: true, ends: true},
		{name: "Ready, but never all of it, and of no use", change: tainted, ends: true},
		{name: "Ready, but never all of it, and pods run there", change: tainted, pod: true, event: "a Warning InitializationTimeout: not initialized within 15m0s: taint readiness.k8s.io/cni:NoSchedule is still there; the node is kept, because pods run there"},
		{name: "initialized", change: func(*corev1.Node) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
			w.kubelet(inst.NodeName)
			w.changeNode(inst.NodeName, tc.change)
			w.step()
			if tc.pod {
				w.pod("web", inst.NodeName)
			}
			w.pass(initializationTimeout-time.Second, 7*time.Minute+29500*time.Millisecond)
			if w.claim("a").DeletionTimestamp != nil {
				t.Fatal("ended before its time")
			}
			w.pass(time.Second, time.Second)
			if ended := w.claim("a").DeletionTimestamp != nil; ended != tc.ends {
				t.Errorf("ended = %v; events %q", ended, w.events)
			}
			if tc.event != "" && !strings.Contains(strings.Join(w.events, "\n"), tc.event) {
				t.Errorf("no event %q in %q", tc.event, w.events)
			}
		})
	}
}

// A Ready node that lacks nothing but the removal of a startup taint is late at fifteen minutes, which is reported, and while pods wait for
// it is given up only after an hour: any other instance would wait for the same.
func TestStartupTaintsThatRemain(t *testing.T) {
	startup := taint("example.com/agent", "NoSchedule")
	for _, tc := range []struct {
		name    string
		change  func(*corev1.Node)
		awaited bool
		late    bool // it is kept at fifteen minutes
		removed bool // and the taint is removed then
	}{
		{name: "pods wait for it", change: func(*corev1.Node) {}, awaited: true, late: true},
		{name: "and it is initialized at last", change: func(*corev1.Node) {}, awaited: true, late: true, removed: true},
		{name: "nobody waits for it", change: func(*corev1.Node) {}},
		{name: "it isn't Ready", change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, awaited: true},
		{name: "it lacks something else, too", change: func(n *corev1.Node) { setTaint(n, taint("readiness.k8s.io/cni", "NoSchedule")) }, awaited: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.awaited = func(claim string) bool { return claim == "a" && tc.awaited }
			claim, inst := w.launched("a", func(c *karpv1.NodeClaim) { c.Spec.StartupTaints = []corev1.Taint{startup} })
			w.createNode(nodeFor(claim, *inst))
			w.kubelet(inst.NodeName)
			w.changeNode(inst.NodeName, tc.change)
			w.step()
			w.pass(initializationTimeout, 5*time.Minute)
			ended := w.claim("a").DeletionTimestamp != nil
			if ended == tc.late {
				t.Fatalf("ended after %s: %t, want %t; events %q", initializationTimeout, ended, !tc.late, w.events)
			}
			if !tc.late {
				return
			}
			const said = "InitializationDelayed: not initialized within 15m0s: startup taint example.com/agent:NoSchedule is still there; pods wait for the node, and it is given up at 2026-03-01T13:"
			if all := strings.Join(w.events, "\n"); strings.Count(all, said) != 2 { // on the claim and on the Node
				t.Errorf("want events %q, have %q", said, w.events)
			}
			if !conditionTrue(w.claim("a"), objects.ConditionInitializationDelayed) {
				t.Errorf("no condition: %+v", w.claim("a").Status.Conditions)
			}
			if tc.removed {
				w.changeNode(inst.NodeName, func(n *corev1.Node) { dropTaint(n, startup.Key) })
				w.pass(time.Second, time.Second)
				if c := w.claim("a"); !conditionTrue(c, karpv1.ConditionTypeInitialized) || condition(c, objects.ConditionInitializationDelayed) != nil {
					t.Errorf("conditions %+v", c.Status.Conditions)
				}
				return
			}
			w.pass(startupTimeout-initializationTimeout-2*time.Minute, time.Minute)
			if w.claim("a").DeletionTimestamp != nil {
				t.Fatal("ended before its time")
			}
			w.pass(3*time.Minute, time.Minute)
			if w.claim("a").DeletionTimestamp == nil {
				t.Error("never ended")
			}
		})
	}
}
