package karpentermetrics

import (
	"slices"
	"strings"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

// Operator is the namespace of metrics about conditions.
const Operator = "operator"

// Labels of series about conditions that come from labels of the object, spelled as Karpenter's status controllers spell them. Karpenter for
// AWS has no other kind of node class.
const (
	ClassLabel       = "karpenter_k8s_aws_ec2nodeclass"
	PoolLabel        = "karpenter_sh_nodepool"
	InitializedLabel = "karpenter_sh_initialized"
)

// Subsystems of metrics about conditions, for all kinds; a kind's own begin with its name.
const (
	ConditionSubsystem   = "status_condition"
	TerminationSubsystem = "termination"
)

// Kind is a kind of object of which Karpenter exports how conditions change and how long objects take to end: as
// operator_<kind>_status_condition_... and operator_<kind>_termination_..., and once more without the kind in the name and with the labels
// group and kind. The latter are deprecated in Karpenter.
type Kind struct {
	Group, Kind string
	// Labels are the labels of the kind's series that come from labels of the object.
	Labels []string
	// Deprecated reports whether the kind has the deprecated series, too.
	Deprecated bool

	transitions             *metrics.CounterVec
	durations, terminations *metrics.HistogramVec
}

// The kinds that have these metrics. Pools, classes and buffers have few objects; the others' series come and go with nodes.
var (
	NodeClaims  = newKind("karpenter.sh", "NodeClaim", true, conditionDurations, ClassLabel, PoolLabel)
	NodePools   = newKind("karpenter.sh", "NodePool", true, conditionDurations)
	NodeClasses = newKind("karpenter.k8s.aws", "EC2NodeClass", true, metrics.DefBuckets)
	Nodes       = newKind("", "Node", false, conditionDurations, ClassLabel, PoolLabel, InitializedLabel)

	CapacityBuffers = newKind("autoscaling.x-k8s.io", "CapacityBuffer", true, conditionDurations)
)

var (
	// conditionDurations are the buckets of Karpenter's histograms of how long conditions last, in seconds.
	conditionDurations = metrics.ExponentialBuckets(0.5, 2, 15)

	anyTransitions, anyDurations, anyTerminations = conditionVecs("", metrics.DefBuckets, "group", "kind")
)

func newKind(group, kind string, deprecated bool, buckets []float64, labels ...string) *Kind {
	k := &Kind{Group: group, Kind: kind, Labels: labels, Deprecated: deprecated}
	k.transitions, k.durations, k.terminations = conditionVecs(k.Prefix(), buckets, labels...)
	return k
}

// Prefix is what the subsystems of the kind's own metrics begin with.
func (k *Kind) Prefix() string { return strings.ToLower(k.Kind) + "_" }

// conditionVecs makes and registers what is counted about a kind, or about all of them.
func conditionVecs(prefix string, buckets []float64, labels ...string) (transitions *metrics.CounterVec, durations, terminations *metrics.HistogramVec) {
	transitions = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: metrics.BuildFQName(Operator, prefix+ConditionSubsystem, "transitions_total"),
		Help: "Changes of conditions to a status, by the condition's type, its status and its reason.", StabilityLevel: metrics.ALPHA,
	}, slices.Concat([]string{"type", "status", "reason"}, labels))
	durations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: metrics.BuildFQName(Operator, prefix+ConditionSubsystem, "transition_seconds"),
		Help: "How long conditions had a status before it changed, by the condition's type and that status.", StabilityLevel: metrics.ALPHA, Buckets: buckets,
	}, slices.Concat([]string{"type", "status"}, labels))
	terminations = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: metrics.BuildFQName(Operator, prefix+TerminationSubsystem, "duration_seconds"),
		Help: "Time from an object's deletion until it was gone.", StabilityLevel: metrics.ALPHA, Buckets: buckets,
	}, labels)
	if slices.Contains(labels, PoolLabel) {
		poolmetrics.MustRegisterAs(PoolLabel, transitions, durations, terminations)
	} else {
		legacyregistry.MustRegister(transitions, durations, terminations)
	}
	return transitions, durations, terminations
}

// Transitioned counts that a condition got a status. labels are the values of Labels.
func (k *Kind) Transitioned(labels []string, condition, status, reason string) {
	k.transitions.WithLabelValues(slices.Concat([]string{condition, status, reason}, labels)...).Inc()
	if k.Deprecated {
		anyTransitions.WithLabelValues(condition, status, reason, k.Group, k.Kind).Inc()
	}
}

// Lasted observes how long a condition had a status that it has no more.
func (k *Kind) Lasted(labels []string, condition, status string, took time.Duration) {
	k.durations.WithLabelValues(slices.Concat([]string{condition, status}, labels)...).Observe(took.Seconds())
	if k.Deprecated {
		anyDurations.WithLabelValues(condition, status, k.Group, k.Kind).Observe(took.Seconds())
	}
}

// Ended observes how long an object took to end.
func (k *Kind) Ended(labels []string, took time.Duration) {
	k.terminations.WithLabelValues(labels...).Observe(took.Seconds())
	if k.Deprecated {
		anyTerminations.WithLabelValues(k.Group, k.Kind).Observe(took.Seconds())
	}
}
