package karpentermetrics

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	//lint:ignore SA1019 Karpenter's is a summary, and dashboards ask for its quantiles
	podStartups = metrics.NewSummaryVec(&metrics.SummaryOpts{
		Namespace: namespace, Subsystem: pods, Name: "startup_duration_seconds",
		Help: "Time from a pod's creation until it is Ready.", StabilityLevel: metrics.ALPHA, Objectives: quantiles,
	}, nil)
	podBindings = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: pods, Name: "bound_duration_seconds",
		Help: "Time from a pod's creation until it is bound.", StabilityLevel: metrics.ALPHA, Buckets: durations,
	}, nil)
	evictions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: pods, Name: "eviction_requests_total",
		Help: "Calls of the Eviction API, by HTTP status code.", StabilityLevel: metrics.ALPHA,
	}, []string{"code"})
	scheduling = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: "scheduler", Name: "scheduling_duration_seconds",
		Help: "Time from the beginning of a plan for waiting pods until it is verified, by controller.", StabilityLevel: metrics.ALPHA, Buckets: durations,
	}, []string{"controller"})
)

func init() {
	legacyregistry.MustRegister(podStartups, podBindings, evictions, scheduling)
	evictions.WithLabelValues("200")
}

// PodStarted observes how long a pod took from its creation until it was Ready.
func PodStarted(took time.Duration) { podStartups.WithLabelValues().Observe(took.Seconds()) }

// PodBound observes how long a pod took from its creation until it was bound.
func PodBound(took time.Duration) { podBindings.WithLabelValues().Observe(took.Seconds()) }

// EvictionRequested counts a call of the Eviction API.
func EvictionRequested(code string) { evictions.WithLabelValues(code).Inc() }

// Scheduled observes how long a plan for waiting pods took. controller is the value of Karpenter's label: provisioner.
func Scheduled(controller string, took time.Duration) {
	scheduling.WithLabelValues(controller).Observe(took.Seconds())
}
