package staticpool

import (
	"testing"
	"time"

	"k8s.io/utils/clock"

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
