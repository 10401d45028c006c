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

// initialize marks a registered node as initialized: fit for everything it was bought for. Until then the scheduler doesn't see its
// ephemeral taints and plans count on the claim's resources; from here on it is like any other node.
func (c *Controller) initialize(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	done := conditionTrue(l.claim, karpv1.ConditionTypeInitialized)
	if !conditionTrue(l.claim, karpv1.ConditionTypeRegistered) || done && (node == nil || node.Labels[karpv1.NodeInitializedLabelKey] == "true") {
		return 0, nil
	}
	set := c.conditions(l.claim)
	if node == nil {
		set.SetUnknownWithReason(karpv1.ConditionTypeInitialized, "NodeNotFound", "its Node does not exist")
		return 0, nil
	}
	if reason, message := c.uninitialized(node, l.claim); reason != "" {
		if !done { // an initialized claim stays initialized
			set.SetUnknownWithReason(karpv1.ConditionTypeInitialized, reason, message)
		}
		return 0, nil
	}
	patched, err := c.patchNode(ctx, node.Name, node.UID, func(n *corev1.Node) {
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
	if !set.SetTrue(karpv1.ConditionTypeInitialized) || !c.index.first(l.claim.Name, toldInitialized) {
		return 0, nil
	}
	initializations.WithLabelValues(pool(l.claim)).Observe(l.now.Sub(l.claim.CreationTimestamp.Time).Seconds())
	klog.FromContext(ctx).V(2).Info("Node initialized", "node", klog.KObj(node), "after", l.now.Sub(launchedAt(l.claim)))
	return 0, nil
}

// uninitialized returns why a node isn't initialized yet; empty: it is.
func (c *Controller) uninitialized(node *corev1.Node, claim *karpv1.NodeClaim) (reason, message string) {
	if !objects.Ready(node) {
		return "NodeNotReady", "the node is not Ready"
	}
	taints := Taints(node)
	for _, t := range slices.Concat(claim.Spec.StartupTaints, c.expected(pool(claim))) {
		if hasTaint(taints, &t) {
			return reasonStartupTaints, fmt.Sprintf("startup taint %s is still there", t.ToString())
		}
	}
	for i := range taints {
		if t := &taints[i]; ephemeral(t) || t.Key == corev1.TaintNodeUnreachable || strings.HasPrefix(t.Key, taintReadinessPrefix) {
			return "KnownEphemeralTaintsExist", fmt.Sprintf("taint %s is still there", t.ToString())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claim.Spec.Resources.Requests)) {
		wanted, have := claim.Spec.Resources.Requests[name], node.Status.Allocatable[name]
		if !wanted.IsZero() && have.IsZero() {
			return reasonNoResource, fmt.Sprintf("resource %s was requested and is not in the node's allocatable", name)
		}
	}
	return "", ""
}

// onlyStartupTaints reports whether the node would be initialized without its startup taints.
func (c *Controller) onlyStartupTaints(node *corev1.Node, claim *karpv1.NodeClaim) bool {
	without := *node
	without.Spec.Taints = slices.Clone(Taints(node))
	without.Annotations = maps.Clone(node.Annotations)
	delete(without.Annotations, objects.AnnotationHiddenTaints)
	startup := slices.Concat(claim.Spec.StartupTaints, c.expected(pool(claim)))
	without.Spec.Taints = slices.DeleteFunc(without.Spec.Taints, func(t corev1.Taint) bool { return hasTaint(startup, &t) })
	reason, _ := c.uninitialized(&without, claim)
	return reason == ""
}
