package aws

import (
	"context"
	"errors"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

var (
	launchSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "launch_duration_seconds",
		Help:           "Time from a launch call to its answer, including the wait for the client-side rate limit, by capacity type and outcome (full, partial, insufficient, throttled, refused, error).",
		StabilityLevel: metrics.ALPHA, Buckets: metrics.ExponentialBuckets(0.1, 2, 12),
	}, []string{"capacity_type", "outcome"})
	launchedInstances = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "instances_launched_total",
		Help: "Instances that were launched, by capacity type and zone. A launch that is repeated after a restart counts again.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type", "zone"})
	fleetErrorsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "fleet_errors_total",
		Help: "Errors in the answers of launch calls, with or without instances, by capacity type and error code.", StabilityLevel: metrics.ALPHA,
	}, []string{"capacity_type", "code"})
)

func init() {
	legacyregistry.MustRegister(launchSeconds, launchedInstances, fleetErrorsTotal)
}

// countLaunch counts a launch call in the metrics.
func countLaunch(w *capacity.LaunchBatch, res *capacity.LaunchResult, took time.Duration, err error) {
	outcome := "full"
	switch {
	case errors.Is(err, context.Canceled):
		return
	case errors.Is(err, capacity.ErrInsufficientCapacity):
		outcome = "insufficient"
	case errors.Is(err, capacity.ErrThrottled):
		outcome = "throttled"
	case errors.Is(err, capacity.ErrRefused):
		outcome = "refused"
	case err != nil:
		outcome = "error"
	case len(res.Instances) < len(w.Claims):
		outcome = "partial"
	}
	launchSeconds.WithLabelValues(w.CapacityType, outcome).Observe(took.Seconds())
	for i := range res.Instances {
		launchedInstances.WithLabelValues(res.Instances[i].CapacityType, res.Instances[i].Zone).Inc()
	}
}
