package provisioning

import (
	"testing"

	"k8s.io/component-base/metrics/testutil"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
)

// The counters grow by what has come since the last pass, and go on when the totals begin again with another leader.
func TestConsolidationCounters(t *testing.T) {
	pool := func(accrued, paid float64) map[string]consolidation.Totals {
		return map[string]consolidation.Totals{"counted": {Accrued: accrued, Paid: paid}}
	}
	count(nil, pool(2, 1))
	count(pool(2, 1), pool(5, 1.5))
	count(nil, pool(1, 0))
	for counter, want := range map[string]float64{"accrued": 6, "paid": 1.5} {
		vec := accruedDollars
		if counter == "paid" {
			vec = paidDollars
		}
		if got, err := testutil.GetCounterMetricValue(vec.WithLabelValues("counted")); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", counter, got, err, want)
		}
	}
}
