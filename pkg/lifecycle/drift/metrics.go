package drift

import (
	"k8s.io/component-base/metrics"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

var driftedNodes = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "dovetail", Subsystem: "lifecycle", Name: "drifted_nodes",
	Help: "Nodes that are no longer what their node pool would launch, by node pool and reason.", StabilityLevel: metrics.ALPHA,
}, []string{poolmetrics.Label, "reason"})

func init() { poolmetrics.MustRegister(driftedNodes) }
