package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	// takenRetry is how often a claim checks whether the Node that has its name is gone, in case the informer misses it.
	takenRetry = 5 * time.Second
	// eventGrace is how long it may take until the cloud controller manager's event about a Node that it deletes is written: it sends the
	// event before the deletion, and doesn't wait for it.
	eventGrace = 5 * time.Second
	eventPoll  = time.Second
	// eventDeleting is the reason of that event (k8s.io/cloud-provider, controllers/nodelifecycle).
	eventDeleting = "DeletingNode"
)

// recreate creates a Node again that the cloud controller manager deleted before its kubelet registered, because it didn't see the instance
// yet. As long as the claim lives, its pods are to run there; if the Node is back within 40 s under the same name, the pods bound to it
// survive.
//
// When anyone else deletes the Node, the claim ends, as after registration. Where that can't be determined, because this leader never saw
// the Node or may not read events, the Node is created again.
func (c *Controller) recreate(ctx context.Context, l *life) (time.Duration, error) {
	name := l.claim.Status.NodeName
	if l.match.node != nil {
		c.index.here(l.claim.Name, l.match.node.UID)
		return 0, nil
	}
	if name == "" || !conditionTrue(l.claim, karpv1.ConditionTypeLaunched) ||
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
		c.index.here(l.claim.Name, "") // the cloud controller manager doesn't see it either, whatever its event says
		return lookEvery, nil          // liveness decides what the other verdicts mean
	}
	if wait, ended, err := c.deletedByOthers(ctx, l); ended || wait > 0 || err != nil {
		return wait, err
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
	klog.FromContext(ctx).V(2).Info("Node vanished before its kubelet registered, created it again", "node", klog.KObj(created))
	c.event(l.claim, created, corev1.EventTypeWarning, reasonNodeRecreated, "Recreate",
		"Node %s was deleted before its kubelet registered; created again because the instance lives", name)
	l.match.node = created
	c.index.here(l.claim.Name, created.UID)
	return 0, nil
}

// deletedByOthers ends the claim of a Node that was deleted, but not by the cloud controller manager. wait: that isn't known yet.
func (c *Controller) deletedByOthers(ctx context.Context, l *life) (wait time.Duration, ended bool, err error) {
	uid, since := c.index.vanished(l.claim.Name, l.now)
	if uid == "" {
		return 0, false, nil
	}
	byCloud, err := c.deletedByCloud(ctx, uid)
	switch {
	case err != nil:
		klog.FromContext(ctx).V(3).Info("Could not read who deleted a Node before its kubelet registered; it is created again", "node", l.claim.Status.NodeName, "err", err)
		return 0, false, nil
	case byCloud:
		return 0, false, nil
	case l.now.Sub(since) < eventGrace:
		return eventPoll, false, nil
	}
	c.event(l.claim, nil, corev1.EventTypeNormal, reasonNodeDeleted, "Delete",
		"Node %s was deleted before its kubelet registered, and not by the cloud controller manager: the instance is terminated", l.claim.Status.NodeName)
	klog.FromContext(ctx).V(2).Info("Node was deleted before its kubelet registered, deleting its NodeClaim", "node", l.claim.Status.NodeName)
	return 0, true, c.deleteClaim(ctx, l.claim)
}

// deletedByCloud reports whether the cloud controller manager has recorded that it deletes the Node.
func (c *Controller) deletedByCloud(ctx context.Context, uid types.UID) (bool, error) {
	list, err := c.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(uid), "reason": eventDeleting}.String()})
	if err != nil {
		return false, fmt.Errorf("reading the events of a Node: %w", err)
	}
	return slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.InvolvedObject.UID == uid && e.Reason == eventDeleting }), nil
}
