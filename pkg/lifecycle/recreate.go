package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// takenRetry is how often a claim looks whether the Node that has its name is gone, should the informer not say so.
const takenRetry = 5 * time.Second

// recreate brings back a Node that vanished before its kubelet came. Somebody who can't see the instance yet deleted it (a
// cloud controller manager, a person); as long as the claim lives, its pods are on their way there. Back within 40 s under
// the same name, the pods bound to it survive.
func (c *Controller) recreate(ctx context.Context, l *life) (time.Duration, error) {
	name := l.claim.Status.NodeName
	if name == "" || l.match.node != nil || !conditionTrue(l.claim, karpv1.ConditionTypeLaunched) ||
		conditionTrue(l.claim, karpv1.ConditionTypeRegistered) {
		return 0, nil
	}
	if l.match.taken != nil {
		return takenRetry, nil
	}
	inst, verdict, err := c.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), 0)
	if err != nil {
		return 0, err
	}
	if verdict != alive {
		return lookEvery, nil // liveness decides what that means
	}
	node, err := c.nodeFor(l.claim, inst)
	if err != nil {
		return 0, fmt.Errorf("making the Node of NodeClaim %s: %w", l.claim.Name, err)
	}
	node.Name = name
	created, err := c.kube.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return takenRetry, nil // the informer is behind, or the name belongs to another instance
	} else if err != nil {
		return 0, fmt.Errorf("creating Node %s again: %w", name, err)
	}
	recreations.Inc()
	klog.FromContext(ctx).V(2).Info("Node vanished before its kubelet came, created it again", "node", klog.KObj(created))
	c.event(l.claim, created, corev1.EventTypeWarning, reasonNodeRecreated, "Recreate",
		"Node %s was deleted before its kubelet came; created again because the instance lives", name)
	l.match.node = created
	return 0, nil
}
