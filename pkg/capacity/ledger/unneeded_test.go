package ledger

import (
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A gang whose last node can't be launched leaves nothing behind: its instances are ended unless other pods use them soon.
func TestMachinesOfAGangThatFellThrough(t *testing.T) {
	for _, tc := range []struct {
		name string
		then func(l *Ledger, c *capacity.Class, now time.Time)
		want []string
	}{
		{"nobody wants it", func(*Ledger, *capacity.Class, time.Time) {}, []string{"c1"}},
		{"a pod was bound there", func(l *Ledger, _ *capacity.Class, _ time.Time) {
			l.Named("c1", "n1", "")
			_ = l.Assume("stranger", "n1", false)
			l.Settled("stranger", "n1")
		}, nil},
		{"a pod is on its way there", func(l *Ledger, _ *capacity.Class, _ time.Time) {
			l.Named("c1", "n1", "")
			_ = l.Assume("stranger", "n1", false)
		}, nil},
		{"one was, and came to nothing", func(l *Ledger, _ *capacity.Class, now time.Time) {
			l.Named("c1", "n1", "")
			_ = l.Assume("stranger", "n1", false)
			l.Unassume("stranger", "n1", now)
		}, []string{"c1"}},
		{"its kubelet has come", func(l *Ledger, _ *capacity.Class, now time.Time) {
			l.Named("c1", "n1", "")
			l.Cached("n1", NodeStatus{Managed: true, Registered: true}, now)
		}, nil},
		{"another plan has it", func(l *Ledger, _ *capacity.Class, now time.Time) {
			other := testClass("other", 100, 0)
			l.Submit(capacity.PodRef{UID: "o"}, other, now)
			l.Commit("o", []capacity.Placement{{Class: other, Pod: capacity.PodRef{UID: "o"}, Node: "c1"}}, now)
		}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l, c := New(), testClass("gang", 100, 0)
			waiting(l, c, now, 1, map[string]capacity.PodRef{"c1": {UID: "a"}, "c2": {UID: "b"}}, "c1", "c2")
			l.Launching("c1", now)
			l.Launching("c2", now)
			l.ClaimGone("c2", "insufficient capacity", true, now)
			tc.then(l, c, now)
			l.Tick(now.Add(unneededFor - 1))
			if e := l.Take(); len(e.End) > 0 {
				t.Errorf("ended at once: %v", e.End)
			}
			l.Tick(now.Add(unneededFor))
			l.Tick(now.Add(2*unneededFor - 1))
			if e := l.Take(); !slices.Equal(e.End, tc.want) {
				t.Errorf("ended %v, want %v", e.End, tc.want)
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}
