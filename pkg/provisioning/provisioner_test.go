package provisioning

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
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
				p := &Provisioner{triggers: newTriggers(reservations.New(clock.RealClock{})), clock: clock.RealClock{}, batchIdle: idle, batchMax: longest,
					settled: func(quiet, window time.Duration) bool {
						return time.Since(begin) > tc.expected && (quiet >= window || tc.alone)
					}}
				p.triggers.Replan()
				for at := tc.every; tc.every > 0 && at <= 2*time.Second; at += tc.every {
					time.AfterFunc(at, p.triggers.Replan)
				}
				if !p.settle(t.Context()) {
					t.Fatal("settle has given up")
				}
				if got := time.Since(begin); got != tc.want {
					t.Errorf("planned after %v, want %v", got, tc.want)
				}
			})
		})
	}
}
