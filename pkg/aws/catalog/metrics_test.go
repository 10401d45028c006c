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
	f := &Region{}
	for _, tt := range []struct {
		settled  bool
		od, spot float64
		onDemand Prices
	}{{false, 0, 0, nil}, {true, 1, 0, nil}, {true, 0, 0, Prices{}}} {
		f.Settled, f.Prices = tt.settled, AllRead(tt.onDemand, Prices{})
		countRegion(f, OnDemand, time.Time{})
		if od, spot := gauge("on-demand"), gauge("spot"); od != tt.od || spot != tt.spot {
			t.Errorf("%+v: on demand %v, spot %v", tt, od, spot)
		}
	}
}
