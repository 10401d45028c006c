package catalog

import (
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
)

func TestEstimatedPricesAreCounted(t *testing.T) {
	gauge := func(capacityType string) float64 {
		t.Helper()
		v, err := testutil.GetGaugeMetricValue(pricesEstimated.WithLabelValues(capacityType))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	f := &Region{Settled: true, Spot: map[Pool]float64{}}
	for _, tt := range []struct {
		settled    bool
		od, spot   float64
		anOnDemand map[string]float64
	}{{false, 0, 0, nil}, {true, 1, 0, nil}, {true, 0, 0, map[string]float64{}}} {
		f.Settled, f.OnDemand = tt.settled, tt.anOnDemand
		countRegion(f, partOnDemand, time.Time{})
		if od, spot := gauge("on-demand"), gauge("spot"); od != tt.od || spot != tt.spot {
			t.Errorf("%+v: on demand %v, spot %v", tt, od, spot)
		}
	}
}
