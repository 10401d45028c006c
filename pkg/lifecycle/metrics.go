package lifecycle

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const (
	metricsNamespace = "dovetail"
	metricsSubsystem = "lifecycle"
)

var (
	registrations = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "nodes_registered_total",
		Help: "Nodes whose kubelet has registered, by node pool.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label})
	initializations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "initialization_duration_seconds",
		Help: "Time from a NodeClaim's creation to its node being initialized.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(1, 1.6, 16),
	}, []string{poolmetrics.Label})
	recreations = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "nodes_recreated_total",
		Help: "Nodes created again because they vanished before their kubelet registered.", StabilityLevel: metrics.ALPHA,
	})
	disruptions = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "nodeclaims_given_up_total",
		Help: "NodeClaims deleted by the lifecycle itself, by node pool and reason.", StabilityLevel: metrics.ALPHA,
	}, []string{poolmetrics.Label, "reason"})
	evictionRequests = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "eviction_requests_total",
		Help: "Calls of the Eviction API, by HTTP status code.", StabilityLevel: metrics.ALPHA,
	}, []string{"code"})
	terminations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "termination_duration_seconds",
		Help: "Time from a NodeClaim's deletion to its instance being seen gone.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(1, 2, 14),
	}, []string{poolmetrics.Label})
	collections = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "instances_collected_total",
		Help: "Instances terminated because no NodeClaim owned them.", StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(recreations, evictionRequests, collections)
	poolmetrics.MustRegister(registrations, initializations, disruptions, terminations)
}

func pool(claim *karpv1.NodeClaim) string { return claim.Labels[karpv1.NodePoolLabelKey] }
