package ledger

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A driver never publishes what a pod needs, and other pods run on the node that was bought for it, so that the node isn't given back empty. When
// the pod's gate has ended, the next node must not be bought as soon as capacity becomes free somewhere: it would end in the same way.
func TestAPodWhoseDriverNeverComesIsNotPlannedAgainAtOnce(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	l, ref := New(), capacity.PodRef{UID: "p"}
	l.SetPatience(Patience{Gate: 10 * time.Minute, Late: time.Minute})
	class := testClass("a", 100, 0)
	class.Drivers = []string{"devices/gpu#1"}
	l.Submit(ref, class, start)
	l.AddNode("claim", &capacity.Node{}, nil, false, start)
	l.Commit("plan", []capacity.Placement{{Class: class, Pod: ref, Node: "claim"}}, start)
	l.Launching("claim", start)
	l.Named("claim", "node", "")
	l.Cached("node", NodeStatus{Managed: true, Registered: true, Initialized: true}, start)
	ended := start.Add(10*time.Minute + time.Second)
	l.Tick(ended)
	if !l.Refused(ref.UID) {
		t.Fatalf("the gate hasn't ended: %s", l.Explain(ref.UID))
	}
	if got := l.TakeRejected(); len(got) != 1 || got[0].Claim != "claim" || got[0].Pod != ref || !got[0].Waited {
		t.Errorf("the guard hears of %+v", got)
	}
	for now := ended; now.Before(ended.Add(9 * time.Minute)); now = now.Add(time.Minute) {
		reopen(l, now)
		changed(l, now)
		relieved(l, now)
		l.Tick(now)
		if !l.Refused(ref.UID) {
			t.Fatalf("after %v the pod is %v", now.Sub(ended), l.pods[ref.UID].state)
		}
	}
	l.Tick(ended.Add(10 * time.Minute))
	if l.Refused(ref.UID) {
		t.Error("the pod is never planned for again")
	}
}
