package ledger

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Three pods are spread over zones, and the plan has nodes for two of them. The third must not take free capacity before the others are
// bound where they were planned, or one of these no longer passes the spread constraint there.
func TestRefusedPodsLeaveDomainsToTheirSiblings(t *testing.T) {
	for _, tc := range []struct {
		name   string
		group  int
		passes time.Duration
		assume []string
		free   bool
	}{
		{name: "the others have no node yet", group: 1},
		{name: "one has", group: 1, assume: []string{"a"}},
		{name: "both have", group: 1, assume: []string{"a", "b"}, free: true},
		{name: "their nodes are late", group: 1, passes: usualPatience.Late, free: true},
		{name: "they don't count on each other", free: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(0, 0)
			l, c := New(), testClass("web", 100, 0)
			a, b, third := capacity.PodRef{UID: "a"}, capacity.PodRef{UID: "b"}, capacity.PodRef{UID: "third"}
			for _, ref := range []capacity.PodRef{a, b, third} {
				l.Submit(ref, c, now)
			}
			for _, claim := range []string{"c1", "c2"} {
				l.AddNode(claim, &capacity.Node{}, nil, false, now)
			}
			l.Commit("plan", []capacity.Placement{{Class: c, Pod: a, Node: "c1", Group: tc.group}, {Class: c, Pod: b, Node: "c2", Group: tc.group}}, now)
			l.Refuse([]types.UID{"third"}, "one zone at a time", false, now)
			for claim, node := range map[string]string{"c1": "n1", "c2": "n2"} {
				l.Launching(claim, now)
				l.Named(claim, node, "")
				l.Cached(node, NodeStatus{Managed: true}, now)
			}
			for _, uid := range tc.assume {
				node, wait := l.Pin(types.UID(uid))
				if wait != "" {
					t.Fatal(wait)
				}
				if err := l.Assume(types.UID(uid), node, false); err != nil {
					t.Fatal(err)
				}
			}
			l.Take()
			now = now.Add(tc.passes + time.Second)
			l.Tick(now)
			node, wait := l.Pin("third")
			if free := wait == ""; free != tc.free || node != "" {
				t.Errorf("free: %t (%s), want %t", free, wait, tc.free)
			}
			if got := slices.Contains(l.Take().Activate, third); got != (tc.free && tc.group != 0) {
				t.Errorf("looked at again: %t", got)
			}
		})
	}
}
