package karpentermetrics

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Dovetail's controllers don't run on controller-runtime, but a pass of one is a reconciliation, and dashboards ask for these names.
var (
	reconciliations = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "controller_runtime", Name: "reconcile_total",
		Help: "Reconciliations of a NodeClaim, Node or the whole cluster, by controller and result.", StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "result"})
	reconcileErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "controller_runtime", Name: "reconcile_errors_total",
		Help: "Reconciliations that failed, by controller.", StabilityLevel: metrics.ALPHA,
	}, []string{"controller"})
	reconcileSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "controller_runtime", Name: "reconcile_time_seconds",
		Help: "How long a reconciliation took, by controller.", StabilityLevel: metrics.ALPHA, Buckets: durations,
	}, []string{"controller"})
)

func init() { legacyregistry.MustRegister(reconciliations, reconcileErrors, reconcileSeconds) }

// Reconciled counts a reconciliation: how long it took, after which time it is repeated (0: when something changes), and its error.
func Reconciled(controller string, took, after time.Duration, err error) {
	result := "success"
	switch {
	case err != nil:
		result = "error"
		reconcileErrors.WithLabelValues(controller).Inc()
	case after > 0:
		result = "requeue_after"
	}
	reconcileErrors.WithLabelValues(controller) // begins at zero
	reconciliations.WithLabelValues(controller, result).Inc()
	reconcileSeconds.WithLabelValues(controller).Observe(took.Seconds())
}
