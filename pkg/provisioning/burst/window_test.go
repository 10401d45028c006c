package burst

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

// A burst is planned when it has settled, which is asked after each third of the window, and never later than the setting says.
func TestBatchingWindow(t *testing.T) {
	const idle, longest = 300 * time.Millisecond, 3 * time.Second
	for _, tc := range []struct {
		name     string
		expected time.Duration // for how long more pods are expected
		alone    bool          // no more pods are likely, as far as is known
		every    time.Duration // another pod comes each time, for two seconds; zero: none
		want     time.Duration
	}{
		{name: "a pod that has come alone", alone: true, want: idle / 3},
		{name: "a pod that has come after others", want: idle},
		{name: "a pod that has come alone, while more are expected", alone: true, expected: 150 * time.Millisecond, want: 2 * idle / 3},
		{name: "pods that come one after the other", every: 200 * time.Millisecond, want: 2*time.Second + idle},
		{name: "pods that are expected and don't come", expected: time.Second, want: time.Second + idle/3},
		{name: "pods with gaps in which more are expected", expected: 2500 * time.Millisecond, every: 500 * time.Millisecond, want: 2500*time.Millisecond + idle/3},
		{name: "more pods are expected all the time", expected: time.Hour, want: longest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				demand := make(chan struct{}, 1)
				w := NewWindow(&arrivals{settled: func(quiet, window time.Duration) bool {
					return time.Since(begin) > tc.expected && (quiet >= window || tc.alone)
				}}, clock.RealClock{}, idle, longest)
				come := func() { demand <- struct{}{} }
				come()
				for at := tc.every; tc.every > 0 && at <= 2*time.Second; at += tc.every {
					time.AfterFunc(at, come)
				}
				if !w.Wait(t.Context(), demand) {
					t.Fatal("Wait has given up")
				}
				if got := time.Since(begin); got != tc.want {
					t.Errorf("planned after %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// A tail is planned for again as soon as no more pods come, or when one of its pods has waited for as long as it may, without new demand.
func TestWaitWithATail(t *testing.T) {
	const idle, longest = 300 * time.Millisecond, 3 * time.Second
	for _, tc := range []struct {
		name string
		more time.Duration // for how long more pods come
		want time.Duration
	}{
		{"no more pods come", time.Millisecond, idle},
		{"more pods come for a while", time.Second, time.Second},
		{"more pods come all the time", time.Hour, longest - time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRest(t)
				r.window = NewWindow(&r.arrivals, clock.RealClock{}, idle, longest)
				r.arrivals.settled = func(quiet, window time.Duration) bool { return quiet >= window }
				begin := time.Now()
				r.arrivals.likely = func() bool { return time.Since(begin) < tc.more }
				r.clock.SetTime(time.Now())
				r.node("half", 0.5)
				r.pod("web", "a", "half", time.Second)
				if held := r.window.Hold(r.plan, r.waiting); held != 1 {
					t.Fatalf("%d nodes are held, want 1", held)
				}
				demand := make(chan struct{}, 1)
				if !r.window.Wait(t.Context(), demand) {
					t.Fatal("Wait has given up")
				}
				if got := time.Since(begin); got != tc.want {
					t.Errorf("planned after %v, want %v", got, tc.want)
				}
				time.AfterFunc(time.Hour, func() { demand <- struct{}{} })
				if r.window.Wait(t.Context(), demand); time.Since(begin) < time.Hour {
					t.Error("what no longer waits is planned for without demand")
				}
			})
		})
	}
}
