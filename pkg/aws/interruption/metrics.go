package interruption

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var interruptionMessages = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Subsystem: "aws", Name: "interruption_messages_total",
	Help: "Messages received from the interruption queue, by kind (other: not about an interruption; unknown: not understood). A message that is received again is counted again.", StabilityLevel: metrics.ALPHA,
}, []string{"kind"})

func init() { legacyregistry.MustRegister(interruptionMessages) }
