package sdk

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	requests = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "requests_total",
		Help:           "Requests to AWS, each attempt counted separately, by service, action and error code (empty: success; Connection: there was no answer).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"service", "action", "code"})
	requestSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "request_duration_seconds",
		Help: "Time that AWS took to answer a request, by service and action.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(0.025, 2, 11),
	}, []string{"service", "action"})
	throttled = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "requests_throttled_total",
		Help: "Requests that AWS throttled, by service and action.", StabilityLevel: metrics.ALPHA,
	}, []string{"service", "action"})
	turnSeconds = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: "dovetail", Subsystem: "aws", Name: "turn_wait_seconds",
		Help: "Time that calls waited for the client-side rate limits, which stay below AWS's documented limits, by service and action.", StabilityLevel: metrics.ALPHA,
		Buckets: []float64{0.001, 0.1, 0.5, 1, 5, 15, 60, 300},
	}, []string{"service", "action"})
)

func init() {
	legacyregistry.MustRegister(requests, requestSeconds, throttled, turnSeconds)
}

// noAnswer is the code of an attempt that AWS did not answer.
const noAnswer = "Connection"

// countRequest counts an attempt in the metrics.
func countRequest(service, action string, took time.Duration, err error) {
	c := Code(err)
	if err != nil && c == "" {
		c = noAnswer
	}
	requests.WithLabelValues(service, action, c).Inc()
	requestSeconds.WithLabelValues(service, action).Observe(took.Seconds())
	if throttleCode(c) {
		throttled.WithLabelValues(service, action).Inc()
	}
}
