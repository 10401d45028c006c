package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPatience(t *testing.T) {
	l, start := New(), time.Unix(1_000_000, 0)
	l.SetPatience(Patience{Gate: time.Hour, Late: 10 * time.Minute})
	class := &capacity.Class{Key: "c", Bind: capacity.BindRegistered, BindReason: "waits"}
	ref := capacity.PodRef{UID: "p"}
	l.Submit(ref, class, start)
	l.AddNode("claim", &capacity.Node{}, nil, false, start)
	l.Commit("plan", []capacity.Placement{{Class: class, Pod: ref, Node: "claim"}}, start)
	l.Launching("claim", start)
	if diff := cmp.Diff(Summary{Pods: map[string]int{"planned": 1}, Nodes: 1, Slots: 1}, l.Summary()); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	late := func() bool { return l.InFlight()[0].Late }
	l.Tick(start.Add(10 * time.Minute))
	if late() {
		t.Error("the node is late already")
	}
	l.Tick(start.Add(10*time.Minute + time.Second))
	if !late() {
		t.Error("the node is not late yet")
	}
	l.Tick(start.Add(time.Hour))
	if closed, _ := l.Gate(ref.UID); !closed {
		t.Error("the pod waits no longer")
	}
	l.Tick(start.Add(time.Hour + time.Second))
	if closed, why := l.Gate(ref.UID); closed || !strings.Contains(l.Explain(types.UID("p")), "in 1h0m0s") {
		t.Errorf("the pod waits still (%s): %s", why, l.Explain("p"))
	}
}

// A gate stays closed beyond its deadline while its node is Ready and has its startup taint, as long as such a node is kept.
func TestGatesOutlastStartupTaints(t *testing.T) {
	start := time.Unix(0, 0)
	agent := []corev1.Taint{{Key: "agent", Effect: corev1.TaintEffectNoSchedule}}
	for _, tc := range []struct {
		name  string
		st    NodeStatus
		after time.Duration
		want  State
	}{
		{"its startup taint stays", NodeStatus{Managed: true, Registered: true, Ready: true, Taints: agent}, usualPatience.Gate + 30*time.Minute, Planned},
		{"but not for ever", NodeStatus{Managed: true, Registered: true, Ready: true, Taints: agent}, usualPatience.Gate + usualPatience.Startup + time.Second, Refused},
		{"it isn't Ready", NodeStatus{Managed: true, Registered: true, Taints: agent}, usualPatience.Gate + time.Second, Refused},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, c := New(), testClass("web", 100, 0)
			waiting(l, c, start, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
			l.Launching("c1", start)
			l.Named("c1", "n1", "")
			l.Cached("n1", tc.st, start)
			if !l.Awaited("c1") || l.Awaited("c2") {
				t.Error("the node is awaited, and no other")
			}
			l.Tick(start.Add(tc.after))
			if got := l.pods["a"].state; got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}
