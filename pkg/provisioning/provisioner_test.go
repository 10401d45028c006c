package provisioning

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// A burst is planned when no pod has come for a while and none is expected, and never later than the setting says.
func TestBatchingWindow(t *testing.T) {
	const idle, longest = 300 * time.Millisecond, 3 * time.Second
	for _, tc := range []struct {
		name     string
		expected time.Duration // for how long more pods are expected
		every    time.Duration // another pod comes each time, for two seconds; zero: none
		want     time.Duration
	}{
		{name: "a lone pod", want: idle},
		{name: "pods that come one after the other", every: 200 * time.Millisecond, want: 2*time.Second + idle},
		{name: "pods that are expected and don't come", expected: time.Second, want: 4 * idle},
		{name: "pods with gaps in which more are expected", expected: 2500 * time.Millisecond, every: 500 * time.Millisecond, want: 2*time.Second + 2*idle},
		{name: "more pods are expected all the time", expected: time.Hour, want: longest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				p := &Provisioner{triggers: newTriggers(reservations.New(clock.RealClock{})), clock: clock.RealClock{}, batchIdle: idle, batchMax: longest,
					expected: func() bool { return time.Since(begin) < tc.expected }}
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
