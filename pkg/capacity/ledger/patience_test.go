package ledger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
