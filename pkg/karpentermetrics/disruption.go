package karpentermetrics

import (
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const voluntary = "voluntary_disruption"

var (
	allowed = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: nodePools, Name: "allowed_disruptions",
		Help: "Nodes of a pool that its disruption budgets allow to terminate now, by reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
	decided = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: voluntary, Name: "decisions_total",
		Help: "Decisions to end a node, by decision (delete: its pods, if any, fit elsewhere; replace: nodes are launched for them), reason and consolidation type.", StabilityLevel: metrics.ALPHA,
	}, []string{"decision", "reason", "consolidation_type"})
	decidedByPool = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: voluntary, Name: "decisions_by_nodepool_total",
		Help: "Decisions to end a node, by node pool, decision, reason and consolidation type.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "decision", "reason", "consolidation_type"})
	eligible = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: namespace, Subsystem: voluntary, Name: "eligible_nodes",
		Help: "Nodes that could be ended for a reason if budgets and the capacity elsewhere allow it.", StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	failures = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: voluntary, Name: "queue_failures_total",
		Help: "Decisions that were given up before the drain began, by decision, reason and consolidation type.", StabilityLevel: metrics.ALPHA,
	}, []string{"decision", "reason", "consolidation_type"})
	evaluations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: voluntary, Name: "decision_evaluation_duration_seconds",
		Help: "Time that one look for nodes to end took, by reason and consolidation type.", StabilityLevel: metrics.ALPHA, Buckets: durations,
	}, []string{"reason", "consolidation_type"})
)

func init() {
	poolmetrics.MustRegister(allowed, decidedByPool)
	legacyregistry.MustRegister(decided, eligible, failures, evaluations)
	for _, kind := range []struct{ decision, reason string }{{"delete", "empty"}, {"delete", "drifted"}, {"delete", "underutilized"}, {"replace", "underutilized"}, {"replace", "drifted"}} {
		decided.WithLabelValues(kind.decision, kind.reason, ConsolidationType(kind.reason))
		failures.WithLabelValues(kind.decision, kind.reason, ConsolidationType(kind.reason))
	}
}

// Allowed sets how many nodes of a pool its budgets allow to terminate for a reason.
func Allowed(pool, reason string, n int) { allowed.WithLabelValues(pool, reason).Set(float64(n)) }

// Decided counts a decision to end a node. replaced: nodes are launched for its pods.
func Decided(n Node, reason string, replaced bool) {
	Disrupted(n, reason)
	decision, name := decisionOf(replaced), snake(reason)
	switch name {
	case "empty", "underutilized", "drifted": // as opposed to nodes that have to end
		decided.WithLabelValues(decision, name, ConsolidationType(name)).Inc()
		decidedByPool.WithLabelValues(n.Pool, decision, name, ConsolidationType(name)).Inc()
	}
}

// GivenUp counts a decision that was given up.
func GivenUp(reason string, replaced bool) {
	name := snake(reason)
	failures.WithLabelValues(decisionOf(replaced), name, ConsolidationType(name)).Inc()
}

// Eligible sets how many nodes could be ended for a reason.
func Eligible(reason string, n int) { eligible.WithLabelValues(snake(reason)).Set(float64(n)) }

// Evaluated observes how long one look for nodes to end for a reason took.
func Evaluated(reason string, took time.Duration) {
	name := snake(reason)
	evaluations.WithLabelValues(name, ConsolidationType(name)).Observe(took.Seconds())
}

func decisionOf(replaced bool) string {
	if replaced {
		return "replace"
	}
	return "delete"
}

// ConsolidationType returns the label's value for a reason as Karpenter spells it: Dovetail always considers several nodes at once.
func ConsolidationType(reason string) string {
	switch reason {
	case "empty":
		return "empty"
	case "underutilized":
		return "multi"
	}
	return ""
}
