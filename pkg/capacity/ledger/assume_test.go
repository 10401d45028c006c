package ledger

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A binding fails after the node's next heartbeat: the pod keeps its reservation, and nothing counts as a failure.
func TestUnassumeAfterAHeartbeat(t *testing.T) {
	up := NodeStatus{Managed: true, Registered: true, Initialized: true, ProviderID: "id"}
	assumed := func() *Ledger {
		l, c, ref := New(), testClass("a", 100, 0), capacity.PodRef{UID: "p"}
		l.Submit(ref, c, epoch)
		l.AddNode("claim", &capacity.Node{}, nil, false, epoch)
		l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "claim"}}, epoch)
		l.Launching("claim", epoch)
		l.Named("claim", "node", "id")
		l.Cached("node", up, epoch)
		l.Pin("p")
		if why := l.Assume("p", "node", false); why != nil {
			t.Fatal(why)
		}
		l.Cached("node", up, epoch) // the heartbeat
		return l
	}
	for _, tc := range []struct {
		name string
		end  func(l *Ledger)
		left int // nodes
	}{
		{"it is tried again", func(l *Ledger) {
			l.Unassume("p", "node", epoch)
			if p := l.pods["p"]; p.state != Open || p.failed > 0 || p.slot == nil {
				t.Errorf("the pod is %s with %d failures, want open with its slot", p.state, p.failed)
			}
			if node, _ := l.Pin("p"); node != "node" {
				t.Errorf("its room is on %q", node)
			}
		}, 1},
		{"it was bound", func(l *Ledger) { l.Settled("p", "node") }, 0},
		{"the informer is faster with that", func(l *Ledger) {
			l.Bound("p", "node", epoch)
			l.Settled("p", "node")
		}, 0},
		{"it is deleted, and the binding fails", func(l *Ledger) {
			l.Gone("p")
			l.Unassume("p", "node", epoch)
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := assumed()
			tc.end(l)
			if err := check(l); err != nil {
				t.Error(err)
			}
			if len(l.nodes) != tc.left {
				t.Errorf("%d nodes are left, want %d:\n%s", len(l.nodes), tc.left, l)
			}
		})
	}
}
