package interruption

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var interruptionMessages = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Subsystem: "aws", Name: "interruption_messages_total",
	Help: "Messages received from the interruption queue, by kind (other: not about an interruption; unknown: not understood). A message that is received again is counted again.", StabilityLevel: metrics.ALPHA,
}, []string{"kind"})

var confirmations = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Subsystem: "aws", Name: "interruption_confirmations_total",
	Help: "What EC2 says about messages of the interruption queue, by kind and outcome (confirmed; foreign: not an instance of this cluster; unconfirmed: EC2 can't tell, and the message was believed; delayed: not believed yet, because too many were; denied: EC2 says otherwise, the message will be received again; refuted: EC2 still says otherwise, the message was ignored).", StabilityLevel: metrics.ALPHA,
}, []string{"kind", "outcome"})

func init() { legacyregistry.MustRegister(interruptionMessages, confirmations) }
