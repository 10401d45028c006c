package provisioning

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

var (
	accruedDollars = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "consolidation", Name: "accrued_dollars_total",
		Help: "What moves of a pool's nodes would have saved if they had been made when they were first possible.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
	paidDollars = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "consolidation", Name: "paid_dollars_total",
		Help: "What the moves of a pool's nodes that were made have cost: restarts of pods, and nodes paid at the same time.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
	planSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "dovetail", Name: "plan_duration_seconds",
		Help: "Time that planning for a burst took, by phase: plan, and verify (the profile's filters check the plan). Each attempt is counted separately.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(0.001, 2, 15),
	}, []string{"phase"})
	planRejections = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Name: "plan_rejections_total",
		Help: "Placements of plans that the profile's filters refused, by plugin.", StabilityLevel: metrics.ALPHA,
	}, []string{"plugin"})
)

func init() {
	poolmetrics.MustRegister(accruedDollars, paidDollars)
	legacyregistry.MustRegister(planSeconds, planRejections)
}

// count adds to the counters what has come to the totals since before.
func count(before, now map[string]consolidation.Totals) {
	for pool, t := range now {
		accruedDollars.WithLabelValues(pool).Add(t.Accrued - before[pool].Accrued)
		paidDollars.WithLabelValues(pool).Add(t.Paid - before[pool].Paid)
	}
}
