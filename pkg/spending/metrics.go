package spending

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

var (
	dollarsPerHour = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "dovetail", Name: "nodes_dollars_per_hour",
		Help:           "What nodes cost at list price, by node pool and state: running, or in_flight at the dearest instance type they may become.",
		StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "state"})
	unserved = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Name: "unserved_dollars_total",
		Help:           "What was spent on machines that were terminated without having done any work, by node pool.",
		StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
	podsRejected = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Name: "pods_rejected_total",
		Help:           "Pods that the kubelets of nodes did not admit, by node pool and the kubelet's reason, such as OutOfmemory.",
		StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
	breakersOpen = metrics.NewGauge(&metrics.GaugeOpts{
		Namespace: "dovetail", Name: "launch_breakers_open",
		Help:           "Breakers of the spending guard that pause launches.",
		StabilityLevel: metrics.ALPHA,
	})
	breakerEvents = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Name: "launch_breaker_events_total",
		Help:           "What has happened to breakers of the spending guard: Opened, Paused (a probe failed), Closed.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"event"})
)

func init() {
	legacyregistry.MustRegister(breakersOpen, breakerEvents)
	poolmetrics.MustRegister(dollarsPerHour, unserved, podsRejected)
}
