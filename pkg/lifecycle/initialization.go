package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Reasons of the Initialized condition (Karpenter's) for what a user has declared: a startup taint that is still there, a resource that is
// not there yet.
const (
	reasonStartupTaints = "StartupTaintsExist"
	reasonNoResource    = "ResourceNotRegistered"
)

// initialization marks nodes that are fit for everything they were bought for.
type initialization struct {
	nodes        *nodes
	reports      *reports
	requirements requirements
}

// reconcile marks a registered node as initialized. Until then the scheduler doesn't see its
// ephemeral taints and plans count on the claim's resources; from here on it is like any other node.
func (i *initialization) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	done := conditionTrue(l.claim, karpv1.ConditionTypeInitialized)
	if !conditionTrue(l.claim, karpv1.ConditionTypeRegistered) || done && (node == nil || node.Labels[karpv1.NodeInitializedLabelKey] == "true") {
		return 0, nil
	}
	set := l.conditions()
	if node == nil {
		set.SetUnknownWithReason(karpv1.ConditionTypeInitialized, "NodeNotFound", "its Node does not exist")
		return 0, nil
	}
	// An initialized claim stays initialized, and its Node gets the label back whatever its state: a kubelet that takes it off its own Node
	// must not have that Node's taints hidden.
	if missing := i.requirements.missing(node, l.claim); missing != nil && !done {
		set.SetUnknownWithReason(karpv1.ConditionTypeInitialized, missing.reason, missing.message)
		return 0, nil
	}
	patched, err := i.nodes.patch(ctx, node.Name, node.UID, func(n *corev1.Node) {
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[karpv1.NodeInitializedLabelKey] = "true"
		if _, wanted := l.claim.Labels[labelExcludeDisruption]; !wanted {
			delete(n.Labels, labelExcludeDisruption) // it was set so that a burst of booting nodes doesn't look like a zone outage
		}
	})
	if gone(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	l.match.node = patched
	if err := set.Clear(objects.ConditionInitializationDelayed); err != nil {
		return 0, fmt.Errorf("clearing condition %s: %w", objects.ConditionInitializationDelayed, err)
	}
	if !set.SetTrue(karpv1.ConditionTypeInitialized) || !i.reports.first(l.claim.Name, nodeInitialized) {
		return 0, nil
	}
	initializations.WithLabelValues(pool(l.claim)).Observe(l.now.Sub(l.claim.CreationTimestamp.Time).Seconds())
	klog.FromContext(ctx).V(2).Info("Node initialized", "node", klog.KObj(node), "after", l.now.Sub(launchedAt(l.claim)))
	return 0, nil
}

// requirements are what a node has to meet to be initialized.
type requirements struct {
	expectedTaints func(pool string) []corev1.Taint // those that new nodes of the pool are known to get although the pool doesn't declare them
}

// requirement is an error: a requirement that a node doesn't meet, with the reason and message for the claim's condition.
type requirement struct{ reason, message string }

func (r *requirement) Error() string { return r.message }

// missing returns why a node isn't initialized yet; nil: it is.
func (r requirements) missing(node *corev1.Node, claim *karpv1.NodeClaim) *requirement {
	if !objects.Ready(node) {
		return &requirement{"NodeNotReady", "the node is not Ready"}
	}
	taints := Taints(node)
	for _, t := range r.startupTaints(claim) {
		if hasTaint(taints, &t) {
			return &requirement{reasonStartupTaints, fmt.Sprintf("startup taint %s is still there", t.ToString())}
		}
	}
	for i := range taints {
		if t := &taints[i]; ephemeral(t) || t.Key == corev1.TaintNodeUnreachable || strings.HasPrefix(t.Key, taintReadinessPrefix) {
			return &requirement{"KnownEphemeralTaintsExist", fmt.Sprintf("taint %s is still there", t.ToString())}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)) {
		wanted, have := claim.Spec.Resources.Requests[name], node.Status.Allocatable[name]
		if !wanted.IsZero() && have.IsZero() {
			return &requirement{reasonNoResource, fmt.Sprintf("resource %s was requested and is not in the node's allocatable", name)}
		}
	}
	return nil
}

func (r requirements) startupTaints(claim *karpv1.NodeClaim) []corev1.Taint {
	return slices.Concat(claim.Spec.StartupTaints, r.expectedTaints(pool(claim)))
}

// onlyStartupTaints reports whether the node would be initialized without its startup taints.
func (r requirements) onlyStartupTaints(node *corev1.Node, claim *karpv1.NodeClaim) bool {
	without := *node
	without.Spec.Taints = slices.Clone(Taints(node))
	without.Annotations = maps.Clone(node.Annotations)
	delete(without.Annotations, objects.AnnotationHiddenTaints)
	startup := r.startupTaints(claim)
	without.Spec.Taints = slices.DeleteFunc(without.Spec.Taints, func(t corev1.Taint) bool { return hasTaint(startup, &t) })
	return r.missing(&without, claim) == nil
}
