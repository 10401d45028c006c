package karpentermetrics

import (
	"strings"
	"time"
	"unicode"

	"k8s.io/component-base/metrics"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const namespace = "karpenter"

// Subsystems.
const (
	nodes      = "nodes"
	nodeClaims = "nodeclaims"
	nodePools  = "nodepools"
	pods       = "pods"
)

// quantiles are those of Karpenter's summaries, and 0.95, which published dashboards ask for.
var quantiles = map[float64]float64{0: 0.01, 0.5: 0.01, 0.9: 0.01, 0.95: 0.01, 0.99: 0.001, 1: 0.001}

// durations are the buckets of Karpenter's histograms of durations, in seconds.
var durations = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4,
	4.5, 5, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60, 120, 150, 300, 450, 600}

// lifetimes are the buckets of nodes' lives, in seconds: a quarter of an hour to 30 days.
var lifetimes = func() []float64 {
	const hour = 3600.0
	out := []float64{hour / 4, hour / 2, 3 * hour / 4}
	for _, hours := range []float64{1, 2, 4, 6, 8, 10, 12, 16, 20} {
		out = append(out, hours*hour)
	}
	for _, days := range []float64{1, 2, 3, 5, 10, 15, 20, 25, 30} {
		out = append(out, days*24*hour)
	}
	return out
}()

var (
	nodesCreated = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodes, Name: "created_total",
		Help: "Nodes whose kubelet has registered, by node pool and zone.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "zone"})
	nodesTerminated = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodes, Name: "terminated_total",
		Help: "Nodes that were terminated, by node pool and zone.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "zone"})
	nodesDrained = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodes, Name: "drained_total",
		Help: "Nodes that were drained, by node pool.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
	//lint:ignore SA1019 Karpenter's is a summary, and dashboards ask for its quantiles
	nodeTerminations = metrics.NewSummaryVec(&metrics.SummaryOpts{
		Namespace: namespace, Subsystem: nodes, Name: "termination_duration_seconds",
		Help: "Time from a Node's deletion to the removal of its finalizer, by node pool.", StabilityLevel: metrics.ALPHA, Objectives: quantiles,
	}, []string{poolmetrics.Label})
	nodeLifetimes = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: nodes, Name: "lifetime_duration_seconds",
		Help: "How long nodes have lived, from the Node's creation to its end, by node pool.", StabilityLevel: metrics.ALPHA, Buckets: lifetimes,
	}, []string{poolmetrics.Label})

	claimsCreated = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodeClaims, Name: "created_total",
		Help: "NodeClaims that were created, by reason (provisioned), by node pool, and by whether minValues were relaxed.", StabilityLevel: metrics.ALPHA,
	}, []string{"reason", poolmetrics.Label, "min_values_relaxed"})
	claimsTerminated = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodeClaims, Name: "terminated_total",
		Help: "NodeClaims that were terminated, by node pool, capacity type and zone.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "capacity_type", "zone"})
	claimsDisrupted = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: namespace, Subsystem: nodeClaims, Name: "disrupted_total",
		Help: "NodeClaims that Dovetail decided to end, by reason, node pool and capacity type.", StabilityLevel: metrics.ALPHA,
	}, []string{"reason", poolmetrics.Label, "capacity_type"})
	claimTerminations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: nodeClaims, Name: "termination_duration_seconds",
		Help: "Time from a NodeClaim's deletion to its instance being seen gone, by node pool.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(1, 2, 14),
	}, []string{poolmetrics.Label})
	instanceTerminations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: namespace, Subsystem: nodeClaims, Name: "instance_termination_duration_seconds",
		Help: "Time from the call that terminates an instance to the instance being seen gone, by node pool.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(1, 2, 11),
	}, []string{poolmetrics.Label})
)

func init() {
	poolmetrics.MustRegister(nodesCreated, nodesTerminated, nodesDrained, nodeTerminations, nodeLifetimes,
		claimsCreated, claimsTerminated, claimsDisrupted, claimTerminations, instanceTerminations)
}

// Node is what series about a node or a NodeClaim are labeled with; a field that isn't known is empty.
type Node struct {
	Pool, Zone, CapacityType string
}

// Registered counts a node whose kubelet has registered.
func Registered(n Node) {
	nodesCreated.WithLabelValues(n.Pool, n.Zone).Inc()
	// A counter that appears with its first event has not risen then, as far as rate() knows.
	nodesTerminated.WithLabelValues(n.Pool, n.Zone)
}

// Drained counts a node that has been drained.
func Drained(n Node) { nodesDrained.WithLabelValues(n.Pool).Inc() }

// NodeTerminated counts a Node whose finalizer is removed: deletion is how long ago it was deleted, life how long ago it was created.
func NodeTerminated(n Node, deletion, life time.Duration) {
	nodesTerminated.WithLabelValues(n.Pool, n.Zone).Inc()
	nodeTerminations.WithLabelValues(n.Pool).Observe(deletion.Seconds())
	nodeLifetimes.WithLabelValues(n.Pool).Observe(life.Seconds())
}

// ClaimCreated counts a NodeClaim that was created. relaxed: the pool's minValues could not be met, and were ignored.
func ClaimCreated(pool string, relaxed bool) {
	value := "false"
	if relaxed {
		value = "true"
	}
	claimsCreated.WithLabelValues("provisioned", pool, value).Inc()
}

// ClaimTerminated counts a NodeClaim that has ended; deletion is how long ago it was deleted.
func ClaimTerminated(n Node, deletion time.Duration) {
	claimsTerminated.WithLabelValues(n.Pool, n.CapacityType, n.Zone).Inc()
	claimTerminations.WithLabelValues(n.Pool).Observe(deletion.Seconds())
}

// InstanceTerminated counts an instance that is gone; took is how long ago it was told to terminate.
func InstanceTerminated(n Node, took time.Duration) {
	instanceTerminations.WithLabelValues(n.Pool).Observe(took.Seconds())
}

// Disrupted counts a NodeClaim that Dovetail decided to end. reason is in upper camel case, as in events and conditions.
func Disrupted(n Node, reason string) {
	claimsDisrupted.WithLabelValues(snake(reason), n.Pool, n.CapacityType).Inc()
}

// snake returns a reason as Karpenter's metrics spell it: Underutilized is underutilized, RegistrationTimeout registration_timeout.
func snake(reason string) string {
	var out strings.Builder
	for i, r := range reason {
		if unicode.IsUpper(r) {
			if i > 0 {
				out.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		out.WriteRune(r)
	}
	return out.String()
}
