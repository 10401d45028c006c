package catalog

import (
	"strings"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	factsRefreshed = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "facts_refreshed_timestamp_seconds",
		Help: "When a part of the catalogue (types, zones, on-demand-prices, spot-prices) was last read, in seconds since 1970; 0: never.", StabilityLevel: metrics.ALPHA,
	}, []string{"part"})
	pricesEstimated = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "prices_estimated",
		Help: "1 while prices of a capacity type are estimated from instance sizes because none could be read.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type"})
)

func init() {
	legacyregistry.MustRegister(factsRefreshed, pricesEstimated)
}

// partName returns a part of the region data as metrics name it.
func partName(part string) string {
	switch part {
	case PartTypes:
		return "types"
	case PartZones:
		return "zones"
	}
	return strings.ReplaceAll(part, " ", "-")
}

func countRegion(f *Region, part string, refreshed time.Time) {
	if !refreshed.IsZero() {
		factsRefreshed.WithLabelValues(partName(part)).Set(float64(refreshed.Unix()))
	}
	estimated := func(capacityType string, unknown bool) {
		v := 0.0
		if unknown && f.Settled {
			v = 1
		}
		pricesEstimated.WithLabelValues(capacityType).Set(v)
	}
	estimated("on-demand", !f.known(false))
	estimated("spot", !f.known(true))
}
