package filterrefusals

import (
	"fmt"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A refusal that was of the moment holds a roll-out up for a minute only; one that lasts is asked for less and less often.
func TestMoves(t *testing.T) {
	clock := testclock.NewFakeClock(time.Date(2026, 11, 29, 7, 0, 0, 0, time.UTC))
	m := NewMoves(clock)
	spread := capacity.Forbidden{Class: "spread", Pool: "default", Zone: "us-west-2b", Plugin: "PodTopologySpread"}
	recalled := func(want int) {
		t.Helper()
		if got := m.Recall(); len(got) != want || want > 0 && got[0] != spread {
			t.Errorf("recalled %v, want %d", got, want)
		}
	}
	recalled(0)
	for i, length := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		spread.Reason = fmt.Sprintf("%d node(s) didn't match pod topology spread constraints", i)
		m.Refuse(spread)
		m.Refuse(spread) // of another pod of the class, in the same pass
		clock.Step(length - time.Second)
		recalled(1)
		clock.Step(time.Second)
		recalled(0)
	}
	clock.Step(9 * time.Minute)
	m.Refuse(spread)
	clock.Step(9 * time.Minute)
	recalled(1)
	clock.Step(time.Minute + pauseMost)
	recalled(0)
	m.Refuse(spread) // forgotten
	clock.Step(time.Minute)
	recalled(0)
}
