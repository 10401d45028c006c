// Package disruptionmetrics has the metrics of package disruption.
package disruptionmetrics

import (
	"k8s.io/component-base/metrics"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

var (
	// Decisions counts nodes that were chosen for termination.
	Decisions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "disruption", Name: "decisions_total",
		Help: "Nodes chosen for termination, by node pool and reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
	// Kept is how many nodes are kept.
	Kept = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "dovetail", Subsystem: "consolidation", Name: "kept_nodes",
		Help: "Nodes of a pool that consolidation keeps, by the kind of reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "kind"})
	// Moves counts moves.
	Moves = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "consolidation", Name: "moves_total",
		Help: "Moves that empty used nodes, by the pool of their first node and by result: reserved, begun, done, given_up.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "result"})
	// MovedPods counts pods that moves evict.
	MovedPods = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "dovetail", Subsystem: "consolidation", Name: "pods_moved_total",
		Help: "Pods on nodes of a pool that were to be evicted when the move of their node began.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
)

func init() {
	poolmetrics.MustRegister(Decisions, Kept, Moves, MovedPods)
}
