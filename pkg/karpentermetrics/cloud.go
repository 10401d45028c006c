package karpentermetrics

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const (
	cloudProvider = "cloudprovider"
	interruption  = "interruption"
)

var (
	cloudCalls = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: cloudProvider, Name: "duration_seconds",
		Help: "Duration of calls of the cloud provider, by controller, method and provider.", StabilityLevel: metrics.ALPHA, Buckets: metrics.DefBuckets,
	}, []string{"controller", "method", "provider"})
	cloudErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: cloudProvider, Name: "errors_total",
		Help: "Calls of the cloud provider that failed, by controller, method, provider and error.", StabilityLevel: metrics.ALPHA,
	}, []string{"controller", "method", "provider", "error"})
	messagesReceived = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: interruption, Name: "received_messages_total",
		Help: "Messages received from the interruption queue, by type (no_op: not about an interruption; unknown: not understood). A message that is received again is counted again.", StabilityLevel: metrics.ALPHA,
	}, []string{"message_type"})
	messagesDeleted = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: interruption, Name: "deleted_messages_total",
		Help: "Messages deleted from the interruption queue.", StabilityLevel: metrics.ALPHA,
	}, nil)
	messageAges = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: interruption, Name: "message_queue_duration_seconds",
		Help: "Time that messages were on the interruption queue before they were handled.", StabilityLevel: metrics.ALPHA, Buckets: durations,
	}, nil)
)

func init() {
	legacyregistry.MustRegister(cloudCalls, cloudErrors, messagesReceived, messagesDeleted, messageAges)
	messagesDeleted.WithLabelValues()
}

// CloudCall is a call of a cloud provider, in the words of Karpenter's metrics.
type CloudCall struct {
	Controller, Method, Provider string
}

// Expect makes the series of a call's errors begin at zero.
func (c CloudCall) Expect() { cloudErrors.WithLabelValues(c.Controller, c.Method, c.Provider, "") }

// Observe counts a call: how long it took, whether it failed, and of which kind the error was; empty: of none that has a name.
func (c CloudCall) Observe(took time.Duration, failed bool, kind string) {
	cloudCalls.WithLabelValues(c.Controller, c.Method, c.Provider).Observe(took.Seconds())
	if failed {
		cloudErrors.WithLabelValues(c.Controller, c.Method, c.Provider, kind).Inc()
	}
}

// MessageReceived counts a message of the interruption queue.
func MessageReceived(kind string) { messagesReceived.WithLabelValues(kind).Inc() }

// MessagesDeleted counts messages that were deleted from the interruption queue; ages are how long they were on it, as far as that is known.
func MessagesDeleted(n int, ages []time.Duration) {
	messagesDeleted.WithLabelValues().Add(float64(n))
	for _, age := range ages {
		messageAges.WithLabelValues().Observe(age.Seconds())
	}
}
