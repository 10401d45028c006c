package lifecycle

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const (
	metricsNamespace = "dovetail"
	metricsSubsystem = "lifecycle"
)

var (
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
	boots = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Namespace: metricsNamespace, Name: "boot_duration_seconds",
		Help: "Time from an instance's launch until its kubelet registers, by instance family.", StabilityLevel: metrics.ALPHA,
		Buckets: []float64{5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 75, 90, 120, 150, 180, 240, 300, 450, 600, 900},
	}, []string{"instance_family"})
	collections = metrics.NewCounter(&metrics.CounterOpts{
		Namespace: metricsNamespace, Subsystem: metricsSubsystem, Name: "instances_collected_total",
		Help: "Instances terminated because no NodeClaim owned them.", StabilityLevel: metrics.ALPHA,
	})
)

func init() {
	legacyregistry.MustRegister(recreations, boots, collections)
	poolmetrics.MustRegister(initializations, disruptions)
}

func pool(claim *karpv1.NodeClaim) string { return claim.Labels[karpv1.NodePoolLabelKey] }

// seriesOf returns the labels of Karpenter's series about a NodeClaim or a Node.
func seriesOf(o metav1.Object) karpentermetrics.Node {
	l := o.GetLabels()
	return karpentermetrics.Node{Pool: l[karpv1.NodePoolLabelKey], Zone: l[corev1.LabelTopologyZone], CapacityType: l[karpv1.CapacityTypeLabelKey]}
}

// countRegistration counts a node whose kubelet has registered, and how long that took.
func countRegistration(l *life) {
	karpentermetrics.Registered(seriesOf(l.claim))
	family, _, _ := strings.Cut(l.claim.Labels[corev1.LabelInstanceTypeStable], ".")
	boots.WithLabelValues(family).Observe(l.now.Sub(launchedAt(l.claim)).Seconds())
}

// countTermination counts a claim that has ended, and how long that took.
func countTermination(l *life) {
	of := seriesOf(l.claim)
	karpentermetrics.ClaimTerminated(of, l.now.Sub(l.claim.DeletionTimestamp.Time))
	if c := condition(l.claim, karpv1.ConditionTypeInstanceTerminating); c != nil {
		karpentermetrics.InstanceTerminated(of, l.now.Sub(c.LastTransitionTime.Time))
	}
}

// countNode counts a Node that was terminated.
func countNode(e *ending) {
	of := seriesOf(e.node)
	if objects.Posted(e.node) {
		karpentermetrics.Drained(of)
	}
	deleted := e.now // without a timestamp: just now
	if t := e.node.DeletionTimestamp; t != nil {
		deleted = t.Time
	}
	karpentermetrics.NodeTerminated(of, e.now.Sub(deleted), e.now.Sub(e.node.CreationTimestamp.Time))
}
