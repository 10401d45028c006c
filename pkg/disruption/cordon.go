package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Fence cordons a node for our own scheduler.
type Fence interface {
	// Fence returns false, and does nothing, when a pod is planned for the node, has a reservation there or is being bound. After true
	// nothing is bound there until Unfence.
	Fence(node string) bool
	Unfence(node string)
	// GiveUpChunks gives up the capacity that is kept on the node for CapacityBuffers, because of which Fence would refuse a node that ends.
	GiveUpChunks(node string)
}

// Nodes keeps other schedulers off a node, and knows about its pod events.
type Nodes interface {
	Disrupt(ctx context.Context, node *corev1.Node) error
	Undisrupt(ctx context.Context, node *corev1.Node) error
	// LastPodEvent returns the last time a pod was bound to the node or left it during this process's life; zero: unknown.
	LastPodEvent(node string) time.Time
}

// cordons keeps pods off nodes that may be terminated: our own scheduler's by Fence, those of others by a taint.
type cordons struct {
	fence Fence
	nodes Nodes
	live  client.Reader
}

// again cordons a node once more: when its move was forgotten the planner lifted the cordon, and the node still needs one.
func (k *cordons) again(node string) {
	k.fence.GiveUpChunks(node)
	k.fence.Fence(node)
}

// clearStale removes the disrupted taint from Nodes whose claim was not deleted: the pass that set it was interrupted. inUse reports the
// candidates whose taint is still needed.
func (k *cordons) clearStale(ctx context.Context, s *cluster, inUse func(*candidate) bool) (errs []error) {
	for _, m := range s.candidates {
		if m.node == nil || m.claim.DeletionTimestamp != nil || m.node.DeletionTimestamp != nil || inUse(m) || !disrupted(m.node) {
			continue
		}
		now := &karpv1.NodeClaim{}
		err := k.live.Get(ctx, client.ObjectKeyFromObject(m.claim), now)
		if apierrors.IsNotFound(err) || err == nil && now.DeletionTimestamp != nil {
			continue
		} else if err != nil {
			errs = append(errs, fmt.Errorf("reading NodeClaim %s: %w", m.claim.Name, err))
			continue
		}
		if err := k.nodes.Undisrupt(ctx, m.node); err != nil {
			errs = append(errs, fmt.Errorf("uncordoning Node %s: %w", m.node.Name, err))
			continue
		}
		k.fence.Unfence(m.node.Name)
		klog.FromContext(ctx).V(2).Info("Removed a left-over taint", "node", klog.KObj(m.node), "nodeClaim", m.claim.Name)
	}
	return errs
}

func disrupted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}
