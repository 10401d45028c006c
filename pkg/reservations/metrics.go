package reservations

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var podsBound = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Name: "pods_bound_total",
	Help: "Pods bound, by capacity: planned (the capacity that was planned for their class), found (nothing was planned for them), " +
		"other (something was planned for them, and they went elsewhere).",
	StabilityLevel: metrics.ALPHA,
}, []string{"room"})

func init() { legacyregistry.MustRegister(podsBound) }
