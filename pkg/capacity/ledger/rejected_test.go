package ledger

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A rejection of a planned pod on its node also tells whether an unplanned pod was bound to the node before, which may have taken the
// pod's capacity.
func TestRejectedBesideOthers(t *testing.T) {
	for _, others := range []bool{false, true} {
		now := time.Unix(0, 0)
		l, c := New(), testClass("web", 100, 0)
		waiting(l, c, now, 0, map[string]capacity.PodRef{"c1": {UID: "a"}}, "c1")
		l.Launching("c1", now)
		l.Named("c1", "n1", "")
		l.Cached("n1", NodeStatus{Managed: true}, now)
		if others {
			_ = l.Assume("urgent", "n1", false)
			l.Settled("urgent", "n1")
		}
		_ = l.Assume("daemon", "n1", true)
		l.Pin("a")
		l.Submit(capacity.PodRef{UID: "a"}, c, now)
		got := l.TakeRejected()
		if len(got) != 1 || got[0].Beside != others {
			t.Errorf("others %v: %+v", others, got)
		}
	}
}

// A pod that was bound to its reservation on the node may be why the filters refuse another one there, whether informers show it yet or not.
func TestRejectedBesidePlanned(t *testing.T) {
	for _, settled := range []bool{false, true} {
		now := time.Unix(0, 0)
		l, c := New(), testClass("web", 100, 0)
		a, b := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}
		l.Submit(a, c, now)
		l.Submit(b, c, now)
		l.AddNode("c1", nil, nil, false, now)
		l.Commit("p", []capacity.Placement{{Class: c, Pod: a, Node: "c1"}, {Class: c, Pod: b, Node: "c1"}}, now)
		l.Launching("c1", now)
		l.Named("c1", "n1", "")
		l.Cached("n1", NodeStatus{Managed: true}, now)
		l.Pin(a.UID)
		l.Pin(b.UID)
		if err := l.Assume(a.UID, "n1", false); err != nil {
			t.Fatal(err)
		}
		if settled {
			l.Settled(a.UID, "n1")
		}
		l.Submit(b, c, now)
		if got := l.TakeRejected(); len(got) != 1 || !got[0].Beside {
			t.Errorf("settled %v: %+v", settled, got)
		}
	}
}
