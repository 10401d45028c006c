package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A NoExecute taint that another program put on a new node is reported if it evicts or keeps off pods that the node was bought for.
func TestTaintsOfFreshNodesAreNoticed(t *testing.T) {
	scanner := corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute}
	tolerant := []corev1.Toleration{{Key: "scanner", Operator: corev1.TolerationOpExists}}
	tainted := NodeStatus{Managed: true, Taints: []corev1.Taint{scanner}}
	for _, tc := range []struct {
		name        string
		tolerations []corev1.Toleration
		bound       bool // before the taint appeared
		seen        []NodeStatus
		want        []Tainted
	}{
		{name: "the pod waits", seen: []NodeStatus{tainted}, want: []Tainted{{"c1", scanner}}},
		{name: "the pod was bound before", bound: true, seen: []NodeStatus{{Managed: true}, tainted}, want: []Tainted{{"c1", scanner}}},
		{name: "once of each node", seen: []NodeStatus{tainted, {Managed: true}, tainted}, want: []Tainted{{"c1", scanner}}},
		{name: "the pod tolerates it", tolerations: tolerant, seen: []NodeStatus{tainted}},
		{name: "a node that is Ready, and not initialized yet", bound: true, seen: []NodeStatus{{Managed: true, Registered: true, KubeletReady: true},
			{Managed: true, Registered: true, KubeletReady: true, Taints: tainted.Taints}}},
		{name: "the node became Ready with it", seen: []NodeStatus{tainted, {Managed: true, Registered: true, KubeletReady: true, Ready: true, Taints: tainted.Taints}}, want: []Tainted{{"c1", scanner}}},
		{name: "an initialized node", seen: []NodeStatus{{Managed: true, Registered: true, Initialized: true, Taints: tainted.Taints}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l, c := New(), testClass("web", 100, 0)
			c.Tolerations = tc.tolerations
			waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
			l.Launching("c1", now)
			l.Named("c1", "n1", "")
			for i, st := range tc.seen {
				l.Cached("n1", st, now)
				if i == 0 && tc.bound {
					l.Pin("a")
					if why := l.Assume("a", "n1", false); why != nil {
						t.Fatal(why)
					}
					l.Settled("a", "n1")
				}
			}
			if diff := cmp.Diff(tc.want, l.Take().Tainted); diff != "" {
				t.Errorf("noticed (-want +got):\n%s", diff)
			}
		})
	}
}

// A NoExecute taint that appears when the kubelet is Ready already is no startup taint, even if other nodes got it before they were Ready: no plan
// puts pods on the node.
func TestTaintsOfReadyNodes(t *testing.T) {
	scanner := corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoExecute}
	booting, ready := NodeStatus{Managed: true}, NodeStatus{Managed: true, Registered: true, KubeletReady: true}
	booting.Expected, ready.Expected = []corev1.Taint{scanner}, []corev1.Taint{scanner}
	with := func(st NodeStatus, taints ...corev1.Taint) NodeStatus { st.Taints = taints; return st }
	unknown, initialized := ready, ready
	unknown.Expected, initialized.Initialized = nil, true
	for _, tc := range []struct {
		name string
		seen []NodeStatus
		late bool
	}{
		{"it came when the node was Ready", []NodeStatus{booting, ready, with(ready, scanner)}, true},
		{"it was learned later that nodes get it", []NodeStatus{booting, unknown, with(unknown, scanner), with(ready, scanner)}, true},
		{"and went, and came again", []NodeStatus{ready, with(ready, scanner), ready, with(ready, scanner)}, true},
		{"and went", []NodeStatus{ready, with(ready, scanner), ready}, false},
		{"it came before", []NodeStatus{booting, with(booting, scanner), with(ready, scanner)}, false},
		{"the node has it when it is first seen", []NodeStatus{with(ready, scanner)}, false},
		{"no other nodes are known to get it", []NodeStatus{unknown, with(unknown, scanner)}, false},
		{"one that lets pods stay", []NodeStatus{ready, with(ready, corev1.Taint{Key: "scanner", Effect: corev1.TaintEffectNoSchedule})}, false},
		{"an initialized node", []NodeStatus{ready, with(ready, scanner), with(initialized, scanner)}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l := New()
			waiting(l, testClass("web", 100, 0), now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
			l.Launching("c1", now)
			l.Named("c1", "n1", "")
			for _, st := range tc.seen {
				l.Cached("n1", st, now)
			}
			for _, f := range l.InFlight() {
				if f.Late != tc.late {
					t.Errorf("closed to plans: %t, want %t", f.Late, tc.late)
				}
			}
		})
	}
}

// If nodes are known to get a taint that the pool doesn't declare, pods that don't tolerate it wait until it would have appeared and been
// removed.
func TestExpectedTaintsHoldPods(t *testing.T) {
	expected := []corev1.Taint{{Key: "scanner", Effect: corev1.TaintEffectNoExecute}}
	now := time.Unix(0, 0)
	for _, tolerant := range []bool{false, true} {
		l, c := New(), testClass("web", 100, 0)
		if tolerant {
			c.Tolerations = []corev1.Toleration{{Key: "scanner", Operator: corev1.TolerationOpExists}}
		}
		waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
		l.Launching("c1", now)
		l.Named("c1", "n1", "")
		for _, step := range []struct {
			name string
			st   NodeStatus
			shut bool
		}{
			{"made ahead of its kubelet", NodeStatus{Managed: true, Expected: expected}, true},
			{"registered, and the taint has come", NodeStatus{Managed: true, Registered: true, Expected: expected, Taints: expected}, true},
			{"Ready, and it is still there", NodeStatus{Managed: true, Registered: true, Ready: true, Expected: expected, Taints: expected}, true},
			{"Ready, without it", NodeStatus{Managed: true, Registered: true, Ready: true, Expected: expected}, false},
		} {
			l.Cached("n1", step.st, now)
			if shut, why := l.Gate("a"); shut != (step.shut && !tolerant) {
				t.Errorf("%s, tolerant %t: gate shut: %t (%s)", step.name, tolerant, shut, why)
			}
		}
	}
}
