package metered

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// failing is a provider whose calls take two seconds and return an error.
type failing struct {
	cloudprovider.Provider
	clock *clocktesting.FakeClock
	err   error
}

func (f *failing) Launch(context.Context, capacity.LaunchBatch) (capacity.LaunchResult, error) {
	f.clock.Step(2 * time.Second)
	return capacity.LaunchResult{}, f.err
}

func TestCallsAreCounted(t *testing.T) {
	inner := &failing{clock: clocktesting.NewFakeClock(time.Now())}
	p := New(inner, "test", inner.clock)
	value := func(metric string, labels map[string]string) (v float64, there bool) {
		families, err := legacyregistry.DefaultGatherer.Gather()
		if err != nil {
			t.Fatal(err)
		}
		labels["controller"], labels["method"], labels["provider"] = launching, "Create", "test"
		for _, f := range families {
			if f.GetName() != metric {
				continue
			}
			for _, m := range f.Metric {
				if testutil.LabelsMatch(m, labels) {
					return m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum(), true
				}
			}
		}
		return 0, false
	}
	errorsOf := func(kind string) (float64, bool) {
		return value("karpenter_cloudprovider_errors_total", map[string]string{"error": kind})
	}
	if v, there := errorsOf(""); v != 0 || !there {
		t.Errorf("before the first call there are %v errors (%t): rate() has nothing to begin with", v, there)
	}
	for _, err := range []error{nil, errors.New("boom"), fmt.Errorf("no m5: %w", capacity.ErrInsufficientCapacity), context.Canceled} {
		inner.err = err
		if _, got := p.Launch(t.Context(), capacity.LaunchBatch{}); !errors.Is(got, err) {
			t.Errorf("%v became %v", err, got)
		}
	}
	for kind, want := range map[string]float64{"": 1, "InsufficientCapacityError": 1} {
		if v, _ := errorsOf(kind); v != want {
			t.Errorf("%v errors of kind %q, want %v", v, kind, want)
		}
	}
	if v, _ := value("karpenter_cloudprovider_duration_seconds", map[string]string{}); v != 6 {
		t.Errorf("the calls took %v s, want 6: what is given up at the end doesn't count", v)
	}
}
