package disruption

import (
	"k8s.io/component-base/metrics"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

// Reasons of events, Karpenter's names.
const (
	reasonBlocked     = "DisruptionBlocked"
	reasonTerminating = "DisruptionTerminating"

	reasonDryRun  = "DisruptionDryRun"
	reasonReplace = "ReplacementPlanned"
	reasonNoRoom  = "ReplacementMissing"
)

var (
	decisions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "disruption", Name: "decisions_total",
		Help: "Nodes chosen for termination, by node pool and reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
	allowedDisruptions = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "dovetail", Subsystem: "disruption", Name: "allowed",
		Help: "Nodes of a pool that its disruption budgets allow to terminate now, by reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
)

func init() { poolmetrics.MustRegister(decisions, allowedDisruptions) }
