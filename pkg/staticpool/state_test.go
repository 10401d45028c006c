package staticpool

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPausesOfAStaticPool(t *testing.T) {
	statics := NewState(nil, clock.RealClock{})
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		statics.recordFailure("pool")
		statics.recordFailure("pool") // of the same round
		s := statics.pools["pool"]
		if left := time.Until(s.Until); s.Failed != i+1 || left <= 0 || left > want {
			t.Errorf("failure %d: %d counted, %v to wait, want up to %v", i+1, s.Failed, left, want)
		}
		s.Until = time.Time{}
	}
	statics.Registered(&capacity.Claim{Pool: "pool", Registered: true, LaunchBatch: &capacity.LaunchBatch{For: capacity.ForPods}})
	if statics.pools["pool"].Failed != 3 {
		t.Error("somebody else's node ended the count")
	}
	statics.Registered(&capacity.Claim{Pool: "pool", Registered: true, LaunchBatch: &capacity.LaunchBatch{For: capacity.ForPool}})
	if s := statics.pools["pool"]; s.Failed != 0 || !s.Until.IsZero() {
		t.Errorf("a node registered, and yet %d failures count until %v", s.Failed, s.Until)
	}
}

// A pool that is gone is forgotten when its back-off is over.
func TestPoolsThatAreGoneAreForgotten(t *testing.T) {
	now := testingclock.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	statics := NewState(nil, now)
	statics.recordFailure("gone")
	statics.recordFailure("there")
	statics.prune(map[string]bool{"there": true})
	if len(statics.pools) != 2 {
		t.Errorf("a back-off was forgotten: %v", statics.pools)
	}
	now.Step(firstRetry)
	statics.prune(map[string]bool{"there": true})
	if len(statics.pools) != 1 || statics.pools["there"] == nil || statics.pools["there"].Failed != 1 {
		t.Errorf("remembered: %v", statics.pools)
	}
}

// What the API server has said about a count holds for longer each time it says so, until something was to be done.
func TestAnswersHoldLonger(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Now())
	s := NewState(nil, clk)
	holds := func() (d time.Duration) {
		s.answer("pool", count{1, 2})
		for ; s.answered("pool", count{1, 2}); clk.Step(poll) {
			d += poll
		}
		return d
	}
	for _, want := range []time.Duration{1, 2, 4, 8, 16, 32, 59, 59} {
		if got := holds(); got != want*time.Second {
			t.Errorf("holds %v, want %vs", got, want)
		}
	}
	s.answer("pool", count{1, 2})
	if s.unanswered("pool"); s.answered("pool", count{1, 2}) {
		t.Error("is still answered")
	}
	if got := holds(); got != poll {
		t.Errorf("holds %v afterwards, want %v", got, poll)
	}
}
