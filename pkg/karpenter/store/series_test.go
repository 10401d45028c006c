package store

import (
	"slices"
	"testing"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

var (
	seriesCounts  = metrics.NewCounterVec(&metrics.CounterOpts{Name: "series_test_total"}, []string{poolmetrics.Label, "reason"})
	seriesGauge   = metrics.NewGaugeVec(&metrics.GaugeOpts{Name: "series_test"}, []string{"state", poolmetrics.Label})
	seriesSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{Name: "series_test_seconds"}, []string{poolmetrics.Label})
	// otherLabel is how Karpenter's status metrics name the pool.
	otherLabel  = "karpenter_sh_nodepool"
	otherCounts = metrics.NewCounterVec(&metrics.CounterOpts{Name: "series_test_other_total"}, []string{otherLabel})
)

func init() {
	poolmetrics.MustRegister(seriesCounts, seriesGauge, seriesSeconds)
	poolmetrics.MustRegisterAs(otherLabel, otherCounts)
}

// The metrics series of a pool are deleted when the pool and its last claim are deleted; series without a pool stay.
func TestSeriesEndWithTheirPool(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), testPool("other", plain), testPool("empty", plain), readyClass("default"))).leading()
	if _, err := w.Create(w.ctx, testClaim("other-1", func(c *capacity.Claim) { c.Pool = "other" })); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"default", "other", "empty", ""} {
		seriesCounts.WithLabelValues(pool, "a").Inc()
		seriesCounts.WithLabelValues(pool, "b").Inc()
		seriesGauge.WithLabelValues("running", pool).Set(1)
		seriesSeconds.WithLabelValues(pool).Observe(1)
		otherCounts.WithLabelValues(pool).Inc()
	}
	w.eventually("they are known", func() bool { return len(w.poolsAndOwners()) == 3 })
	have := func(want ...string) {
		t.Helper()
		for _, name := range []string{"series_test_total", "series_test", "series_test_seconds", "series_test_other_total"} {
			w.eventually(name+" has series of these", func() bool {
				w.clock.Step(endSeriesEvery)
				return slices.Equal(pools(t, name), want)
			})
		}
	}
	have("", "default", "empty", "other")

	for _, pool := range []string{"other", "empty"} {
		if err := w.api.Delete(w.ctx, testPool(pool)); err != nil {
			t.Fatal(err)
		}
	}
	have("", "default", "other")                // other's node is still terminating
	claim := w.knownClaim("other-1").DeepCopy() // after its pool was deleted
	w.edit(claim, func() { claim.Finalizers = nil })
	have("", "default")
	seriesCounts.WithLabelValues("other", "a").Inc() // by a slow goroutine
	have("", "default")
}

// pools returns the pools that a metric has series of.
func pools(t *testing.T, metric string) []string {
	t.Helper()
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, family := range all {
		if family.GetName() != metric {
			continue
		}
		for _, one := range family.Metric {
			for _, l := range one.Label {
				if l.GetName() == poolmetrics.Label || l.GetName() == otherLabel {
					out = append(out, l.GetValue())
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
