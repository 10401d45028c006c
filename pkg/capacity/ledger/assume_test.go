package ledger

import (
	"testing"
	"time"

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

// A plugin refuses the binding of a pod each time. As long as that may be a trouble of the moment, the pod keeps its slot; then others get the
// capacity, and none is bought for the pod for a while.
func TestBindingThatAlwaysFailsGivesUpItsSlot(t *testing.T) {
	for _, tc := range []struct {
		name  string
		tries int
		every time.Duration
		keeps bool
	}{
		{"often, within a short time", 100, 10 * time.Second, true},
		{"for long, but seldom", bindingTries - 1, usualPatience.Gate, true},
		{"often and for long", bindingTries, usualPatience.Gate, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, c, now := New(), testClass("a", 100, 0), epoch
			ref := capacity.PodRef{UID: "p"}
			l.Submit(ref, c, now)
			l.Existing("node", NodeStatus{})
			l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "node"}}, now)
			for range tc.tries {
				now = now.Add(tc.every)
				l.Tick(now)
				if node, why := l.Pin("p"); node == "" {
					t.Fatalf("it has no node: %s", why)
				}
				if err := l.Assume("p", "node", false); err != nil {
					t.Fatal(err)
				}
				l.Unassume("p", "node", now)
				if err := check(l); err != nil {
					t.Fatal(err)
				}
			}
			p := l.pods["p"]
			if keeps := p.state == Open && p.slot != nil; keeps != tc.keeps {
				t.Errorf("it is %s, and keeps its slot: %t", p.state, keeps)
			}
			if l.Take(); !tc.keeps {
				if l.Tick(now.Add(usualPatience.Gate - time.Second)); l.pods["p"].state != Refused {
					t.Errorf("it is %s soon after", l.pods["p"].state)
				}
				if l.Tick(now.Add(usualPatience.Gate)); l.pods["p"].state != Queued {
					t.Errorf("it is %s in the end", l.pods["p"].state)
				}
			}
		})
	}
}
