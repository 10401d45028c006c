package aws

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// grown returns a function that returns by how much a counter has grown since.
func grown(t *testing.T, c metrics.CounterMetric) func() float64 {
	t.Helper()
	value := func() float64 {
		v, err := testutil.GetCounterMetricValue(c)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := value()
	return func() float64 { return value() - before }
}

func gauge(t *testing.T, g metrics.GaugeMetric) float64 {
	t.Helper()
	v, err := testutil.GetGaugeMetricValue(g)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	ok := grown(t, requests.WithLabelValues("EC2", "CreateFleet", ""))
	refused := grown(t, requests.WithLabelValues("EC2", "CreateFleet", "RequestLimitExceeded"))
	slow := grown(t, throttled.WithLabelValues("EC2", "CreateFleet"))
	launched := grown(t, launchedInstances.WithLabelValues("on-demand", "us-west-2a"))
	empty := grown(t, fleetErrorsTotal.WithLabelValues("on-demand", "InsufficientInstanceCapacity"))
	lost := grown(t, requests.WithLabelValues("EC2", "CreateFleet", noAnswer))

	w.sim.Before("CreateFleet", sim.Times(2, sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}))
	w.sim.SetCapacity("m5.large", "us-west-2a", "on-demand", 3)
	if _, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 5, offer("m5.large", "a", "on-demand")))); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"requests that worked": {1, ok()}, "requests that were refused": {2, refused()}, "throttled": {2, slow()}, "lost": {0, lost()},
		"instances": {3, launched()}, "errors of fleets": {1, empty()}, "pools without capacity": {1, gauge(t, exhaustedOffers.WithLabelValues("pool"))},
		"types without capacity": {0, gauge(t, exhaustedOffers.WithLabelValues("type"))}, "estimated": {0, gauge(t, pricesEstimated.WithLabelValues("spot"))},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: %v, want %v", name, v[1], v[0])
		}
	}
	for _, part := range []string{"types", "zones", "on-demand-prices", "spot-prices"} {
		if gauge(t, factsRefreshed.WithLabelValues(part)) == 0 {
			t.Errorf("%s were never read", part)
		}
	}
	if n, err := testutil.GetHistogramMetricCount(launchSeconds.WithLabelValues("on-demand", "partial")); err != nil || n == 0 {
		t.Errorf("%d launches that were filled in part, %v", n, err)
	}
}

func TestEstimatedPricesAreCounted(t *testing.T) {
	f := &regionData{settled: true, spot: map[zonalType]float64{}}
	for _, tt := range []struct {
		settled    bool
		od, spot   float64
		anOnDemand map[string]float64
	}{{false, 0, 0, nil}, {true, 1, 0, nil}, {true, 0, 0, map[string]float64{}}} {
		f.settled, f.onDemand = tt.settled, tt.anOnDemand
		countRegionData(f, partOnDemand, time.Time{})
		if od, spot := gauge(t, pricesEstimated.WithLabelValues("on-demand")), gauge(t, pricesEstimated.WithLabelValues("spot")); od != tt.od || spot != tt.spot {
			t.Errorf("%+v: on demand %v, spot %v", tt, od, spot)
		}
	}
}
