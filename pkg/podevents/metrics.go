package podevents

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// leftOut counts the events that were not written.
var leftOut = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Name: "pod_events_left_out_total",
	Help: "Events about pods that were not written because there were many, by reason.", StabilityLevel: metrics.ALPHA,
}, []string{"reason"})

func init() {
	legacyregistry.MustRegister(leftOut)
}
