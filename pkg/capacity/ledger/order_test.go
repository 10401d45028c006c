package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// manyPods returns a ledger with pods of one class that arrived one after the other, the last name first.
func manyPods(n int) (l *Ledger, uids []types.UID, now time.Time) {
	l, now = New(), time.Unix(0, 0)
	c := testClass("web", 100, 0)
	for i := range n {
		uids = append(uids, types.UID(fmt.Sprintf("p-%03d", n-i)))
		now = now.Add(time.Second)
		l.Submit(capacity.PodRef{UID: uids[i]}, c, now)
	}
	return l, uids, now
}

func uidsOf[T any](all []T, uid func(T) types.UID) (out []types.UID) {
	for _, one := range all {
		out = append(out, uid(one))
	}
	return out
}

// However they fail, pods are planned for in the order in which they arrived, although all of them start to wait again at the same
// moment.
func TestFirstComeFirstPlannedAfterARetry(t *testing.T) {
	for name, retry := range map[string]func(l *Ledger, uids []types.UID, now time.Time){
		"the back-off is over": func(l *Ledger, uids []types.UID, now time.Time) {
			l.Refuse(uids, "no offer", true, now)
			l.Tick(now.Add(time.Hour))
		},
		"room was given back": func(l *Ledger, uids []types.UID, now time.Time) {
			l.Refuse(uids, "no offer", false, now)
			reopen(l, now.Add(backoff.First))
		},
		"offers have changed": func(l *Ledger, uids []types.UID, now time.Time) {
			l.Refuse(uids, "no offer", false, now)
			changed(l, now.Add(time.Minute))
		},
		"below a limit again": func(l *Ledger, uids []types.UID, now time.Time) {
			l.Refuse(uids, "no offer", true, now)
			relieved(l, now.Add(backoff.First))
		},
		"their node's launch failed": func(l *Ledger, uids []types.UID, now time.Time) {
			l.AddNode("c", nil, nil, false, now)
			var pl []capacity.Placement
			for _, w := range InOrder(l.QueuedPods(l.Queue())) {
				pl = append(pl, capacity.Placement{Class: w.Class, Pod: w.Ref, Node: "c"})
			}
			l.Commit("1", pl, now)
			l.ClaimGone("c", "no capacity", true, now)
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, uids, now := manyPods(50)
			retry(l, uids, now)
			if got := uidsOf(InOrder(l.QueuedPods(l.Queue())), func(w Waiting) types.UID { return w.Ref.UID }); !slices.Equal(got, uids) {
				t.Errorf("planned for as\n%v, came as\n%v", got, uids)
			}
		})
	}
}

// Pods whose gates end together are opened, and their events are reported, in the order in which they arrived.
func TestGatesEndInTheOrderOfArrival(t *testing.T) {
	l, uids, now := manyPods(50)
	l.AddNode("c", nil, nil, true, now)
	var pl []capacity.Placement
	for _, w := range InOrder(l.QueuedPods(l.Queue())) {
		pl = append(pl, capacity.Placement{Class: w.Class, Pod: w.Ref, Node: "c"})
	}
	l.Commit("1", pl, now)
	l.Take()
	l.Tick(now.Add(24 * time.Hour))
	out := l.Take()
	if got := uidsOf(out.Activate, func(r capacity.PodRef) types.UID { return r.UID }); !slices.Equal(got, uids) {
		t.Errorf("let go as\n%v, came as\n%v", got, uids)
	}
	if got := uidsOf(out.Words, func(w Word) types.UID { return w.Ref.UID }); !slices.Equal(got, uids) {
		t.Errorf("told as\n%v, came as\n%v", got, uids)
	}
}
