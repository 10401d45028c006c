package brake

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBrake(t *testing.T) {
	b := New(2)
	for i, step := range []struct {
		at   time.Duration
		want bool
		wait time.Duration // afterwards
	}{
		{0, true, 0},
		{10 * time.Second, true, 50 * time.Second},
		{20 * time.Second, false, 40 * time.Second},
		{59 * time.Second, false, time.Second},
		{60 * time.Second, true, 10 * time.Second},
		{70 * time.Second, true, 50 * time.Second},
		{-time.Hour, true, 0}, // the clock was set back
	} {
		now := epoch.Add(step.at)
		if got := b.Take(now); got != step.want {
			t.Errorf("step %d: Take = %v", i, got)
		}
		if got := b.Wait(now); got != step.wait {
			t.Errorf("step %d: Wait = %s, want %s", i, got, step.wait)
		}
	}
	if New(0).PerMinute() != 1 {
		t.Error("a brake that lets nothing through would never end")
	}
}

// Whenever Take is called, no minute exceeds its share.
func TestNoMinuteHasMore(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		most := 1 + r.IntN(20)
		b := New(most)
		var passed []time.Time
		now := epoch
		for range 500 {
			now = now.Add(time.Duration(r.IntN(4000)) * time.Millisecond)
			if b.Take(now) {
				passed = append(passed, now)
			}
		}
		for i := most; i < len(passed); i++ {
			if d := passed[i].Sub(passed[i-most]); d < time.Minute {
				t.Fatalf("seed %d: %d ends within %s", seed, most+1, d)
			}
		}
		if len(passed) < most {
			t.Fatalf("seed %d: only %d passed", seed, len(passed))
		}
	}
}
