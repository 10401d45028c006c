package aws

import (
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// metric returns one of the metrics under dovetail_aws as they are scraped, by its name and its labels and their values; nil: there is
// none.
func metric(t *testing.T, name string, labels ...string) *dto.Metric {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "dovetail_aws_"+name {
			continue
		}
		for _, m := range f.Metric {
			if testutil.LabelsMatch(m, want) {
				return m
			}
		}
	}
	return nil
}

// gauge returns the value of a gauge, which has to exist.
func gauge(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	m := metric(t, name, labels...)
	if m.GetGauge() == nil {
		t.Fatalf("there is no gauge %s with %q", name, labels)
	}
	return m.GetGauge().GetValue()
}

// grown returns a function that returns by how much a counter has grown since.
func grown(t *testing.T, name string, labels ...string) func() float64 {
	t.Helper()
	value := func() float64 { return metric(t, name, labels...).GetCounter().GetValue() }
	before := value()
	return func() float64 { return value() - before }
}

func TestMetrics(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	ok := grown(t, "requests_total", "service", "EC2", "action", "CreateFleet", "code", "")
	refused := grown(t, "requests_total", "service", "EC2", "action", "CreateFleet", "code", "RequestLimitExceeded")
	slow := grown(t, "requests_throttled_total", "service", "EC2", "action", "CreateFleet")
	launched := grown(t, "instances_launched_total", "capacity_type", "on-demand", "zone", "us-west-2a")
	empty := grown(t, "fleet_errors_total", "capacity_type", "on-demand", "code", "InsufficientInstanceCapacity")
	lost := grown(t, "requests_total", "service", "EC2", "action", "CreateFleet", "code", "Connection")

	w.sim.Before("CreateFleet", sim.Times(2, sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}))
	w.sim.SetCapacity("m5.large", "us-west-2a", "on-demand", 3)
	if _, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 5, offer("m5.large", "a", "on-demand")))); err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string][2]float64{
		"requests that worked": {1, ok()}, "requests that were refused": {2, refused()}, "throttled": {2, slow()}, "lost": {0, lost()},
		"instances": {3, launched()}, "errors of fleets": {1, empty()}, "pools without capacity": {1, gauge(t, "exhausted", "kind", "pool")},
		"types without capacity": {0, gauge(t, "exhausted", "kind", "type")}, "estimated": {0, gauge(t, "prices_estimated", "capacity_type", "spot")},
	} {
		if v[0] != v[1] {
			t.Errorf("%s: %v, want %v", name, v[1], v[0])
		}
	}
	for _, part := range []string{"types", "zones", "on-demand-prices", "spot-prices"} {
		if gauge(t, "facts_refreshed_timestamp_seconds", "part", part) == 0 {
			t.Errorf("%s were never read", part)
		}
	}
	if n := metric(t, "launch_duration_seconds", "capacity_type", "on-demand", "outcome", "partial").GetHistogram().GetSampleCount(); n == 0 {
		t.Errorf("%d launches that were filled in part", n)
	}
}
