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
