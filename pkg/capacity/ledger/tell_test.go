package ledger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// It is reported what a pod waits for once its Node exists, and again whenever the reason changes, but not twice.
func TestWaitingPodsGetAReason(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("gpu", 100, 0)
	c.Bind, c.BindReason = capacity.BindInitialized, "requests nvidia.com/gpu"
	c.Drivers = []string{"ebs"}
	a := capacity.PodRef{UID: "a"}
	waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": a}, "c1")
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	startup := []corev1.Taint{{Key: "agent", Effect: corev1.TaintEffectNoSchedule}}
	for _, step := range []struct {
		name string
		st   NodeStatus
		want []Word
	}{
		{"the Node is there", NodeStatus{Managed: true, Taints: startup}, []Word{{a, "its node is not initialized yet: requests nvidia.com/gpu"}}},
		{"nothing changed for it", NodeStatus{Managed: true, Registered: true, Taints: startup}, nil},
		{"it waits for something else", NodeStatus{Managed: true, Registered: true, Initialized: true},
			[]Word{{a, "the CSI driver ebs has not registered on its node yet"}}},
		{"it waits no more", NodeStatus{Managed: true, Registered: true, Initialized: true, Drivers: []string{"ebs"}}, nil},
	} {
		l.Cached("n1", step.st, now)
		if diff := cmp.Diff(step.want, l.Take().Waits); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
}

// Pods of one class may wait for several nodes: for each pod one node is reported.
func TestEachWaitingPodGetsOneNodesReason(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), testClass("job", 100, 0)
	c.Bind, c.BindReason = capacity.BindRegistered, "nobody recreates it"
	pods := map[string]capacity.PodRef{"c1": {UID: "a"}, "c2": {UID: "b"}}
	waiting(l, c, now, 0, pods, "c1", "c2")
	told := map[string]bool{}
	for _, claim := range []string{"c2", "c1"} {
		l.Launching(claim, now)
		l.Named(claim, "n-"+claim, "")
		l.Cached("n-"+claim, NodeStatus{Managed: true}, now)
		for _, w := range l.Take().Waits {
			told[string(w.Ref.UID)] = true
		}
	}
	if len(told) != 2 {
		t.Errorf("told %v, want both pods", told)
	}
}
