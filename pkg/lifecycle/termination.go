package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// minDrain is how long a node is kept cordoned before its instance ends, for pods that were bound before every scheduler
	// had seen the taint.
	minDrain = 5 * time.Second
	// drainPoll is how often a drain looks again by itself.
	drainPoll = time.Second
	// endPoll is how often a terminating instance is looked at.
	endPoll = 2 * time.Second
)

// ending is a node on its way out. The claim is nil for a Node whose claim is gone; node is nil when there is no Node.
type ending struct {
	claim      *karpv1.NodeClaim
	node       *corev1.Node // as last read or written
	providerID string
	// deadline is when the drain is over whatever is left of it; zero: never.
	deadline time.Time
	now      time.Time
	// bindsInFlight says whether pods are being bound to the Node; nothing else goes there any more.
	bindsInFlight func() bool
}

// step does one step of an ending. A wait that isn't zero means that the next step's time has not come.
type step func(ctx context.Context, e *ending) (wait time.Duration, err error)

// finalize ends a deleted claim's node in order and lets the claim go.
func (c *Controller) finalize(ctx context.Context, l *life) (time.Duration, error) {
	if !hasFinalizer(l.claim) {
		return 0, nil
	}
	if l.claim.Status.ProviderID == "" {
		return c.endUnlaunched(ctx, l)
	}
	deadline := c.terminationDeadline(l.claim)
	// Each Node by itself: stale ones have no kubelet, so only the claim's own is drained.
	for _, n := range l.match.all() {
		e := &ending{claim: l.claim, node: n, providerID: l.claim.Status.ProviderID, deadline: deadline, now: l.now}
		if wait, err := c.end(ctx, e); wait != 0 || err != nil {
			return wait, err
		}
	}
	if l.match.node == nil {
		e := &ending{claim: l.claim, providerID: l.claim.Status.ProviderID, deadline: deadline, now: l.now}
		if wait, err := c.end(ctx, e); wait != 0 || err != nil {
			return wait, err
		}
	}
	if l.match.node == nil && l.match.taken == nil {
		err := c.deleteOrphanedPods(ctx, l.claim.Status.NodeName)
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			return 0, err
		}
		if err != nil { // somebody protects them; the claim has nothing left to keep
			klog.FromContext(ctx).Info("Pods that a Node has left behind could not be ended", "node", l.claim.Status.NodeName, "err", err)
		}
	}
	dropFinalizer(l.claim)
	if !c.index.first(l.claim.Name, toldEnded) {
		return 0, nil // told before; the cache has not seen it go
	}
	terminations.WithLabelValues(pool(l.claim)).Observe(l.now.Sub(l.claim.DeletionTimestamp.Time).Seconds())
	klog.FromContext(ctx).V(2).Info("NodeClaim ended", "instance", capacity.InstanceID(l.claim.Status.ProviderID))
	return 0, nil
}

// reconcileNode ends a deleted Node of ours that has no claim.
func (c *Controller) reconcileNode(ctx context.Context, name string) (time.Duration, error) {
	node, err := c.nodeList.Get(name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("finding Node %s: %w", name, err)
	}
	if !finalized(node) || node.DeletionTimestamp == nil || len(c.claimsOf(node)) > 0 {
		return 0, nil
	}
	owned, err := c.liveClaims(ctx)
	if err != nil {
		return 0, err
	}
	if claim := owned.byProvider[node.Spec.ProviderID]; claim != nil {
		c.index.observe(claim)
		c.enqueue(key{claim: claim.Name})
		return 0, nil
	}
	return c.end(ctx, &ending{node: node, providerID: node.Spec.ProviderID, now: c.clock.Now()})
}

// end takes a node through its steps. From the first look at it on, our own scheduler lets no pod go there. Nothing ran on a node whose kubelet never came, so its instance may end first and its
// pods go back without waiting for that.
func (c *Controller) end(ctx context.Context, e *ending) (time.Duration, error) {
	if e.node == nil {
		return c.endInstance(ctx, e)
	}
	e.bindsInFlight = func() bool { return c.close(e.node.Name, e.node.Spec.ProviderID) }
	e.bindsInFlight() // before the taint: what our own scheduler lets through until then is on its way, and known to be
	if wait, err := c.cordon(ctx, e); wait != 0 || err != nil {
		return wait, err
	}
	steps := []step{c.skipIfEnded, c.drain, c.detachVolumes, c.endInstance, c.removeNode}
	if !Posted(e.node) { // cordon has read it live, the first time
		steps = []step{c.beginEnd, c.abandonPods, c.endInstance, c.removeNode}
	}
	for _, s := range steps {
		wait, err := s(ctx, e)
		if errors.Is(err, errEnded) {
			return c.removeNode(ctx, e)
		}
		if wait != 0 || err != nil {
			return wait, err
		}
	}
	return 0, nil
}

// errEnded: the instance is gone and the kubelet with it; there is nothing to drain or to wait for.
var errEnded = errors.New("instance has ended")

// cordon keeps pods and load balancers away and begins the Node's deletion. Every Node on its way out carries the finalizer,
// so that it stays until its instance is gone.
func (c *Controller) cordon(ctx context.Context, e *ending) (time.Duration, error) {
	_, excluded := e.node.Labels[corev1.LabelNodeExcludeBalancers]
	if !hasTaint(e.node.Spec.Taints, &karpv1.DisruptedNoScheduleTaint) || !excluded ||
		e.node.DeletionTimestamp == nil && !hasFinalizer(e.node) {
		node, err := c.patchNode(ctx, e.node.Name, e.node.UID, func(n *corev1.Node) {
			dropTaint(n, karpv1.DisruptedTaintKey) // of another effect
			setTaint(n, karpv1.DisruptedNoScheduleTaint)
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			if _, ok := n.Labels[corev1.LabelNodeExcludeBalancers]; !ok {
				n.Labels[corev1.LabelNodeExcludeBalancers] = "karpenter"
			}
			if n.DeletionTimestamp == nil { // the API refuses new finalizers on a deleted object
				addFinalizer(n)
			}
		})
		if gone(err) {
			return drainPoll, nil // look again with what the informer says then
		} else if err != nil {
			return 0, err
		}
		klog.FromContext(ctx).V(2).Info("Cordoned a node that is ending", "node", klog.KObj(node))
		e.node = node
	}
	if e.node.DeletionTimestamp == nil {
		return 0, c.deleteNode(ctx, e.node)
	}
	return 0, nil
}

// skipIfEnded looks whether there is anything left to drain: a kubelet that says Ready lives, whatever the cloud says.
func (c *Controller) skipIfEnded(ctx context.Context, e *ending) (time.Duration, error) {
	if objects.Ready(e.node) {
		return 0, nil
	}
	_, v, err := c.look(ctx, e.providerID, e.launchedAt(), endPoll)
	if err != nil {
		return 0, err
	}
	if v == ended {
		return 0, errEnded
	}
	return 0, nil
}

// beginEnd asks for the end of an instance without waiting for it.
func (c *Controller) beginEnd(ctx context.Context, e *ending) (time.Duration, error) {
	_, err := c.endInstance(ctx, e)
	return 0, err
}

// abandonPods ends what was bound to a node whose kubelet never came; unless it came just now.
func (c *Controller) abandonPods(ctx context.Context, e *ending) (time.Duration, error) {
	now, err := c.kube.CoreV1().Nodes().Get(ctx, e.node.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading Node %s: %w", e.node.Name, err)
	}
	if Posted(now) {
		return drainPoll, nil
	}
	return 0, c.killPods(ctx, e.node.Name, func(*corev1.Pod) bool { return true })
}

// endInstance terminates the instance and waits until the cloud says so. The call is repeated until the instance is seen on
// its way: an accepted call may be lost, and "not found" soon after a launch means nothing.
func (c *Controller) endInstance(ctx context.Context, e *ending) (time.Duration, error) {
	inst, v, err := c.look(ctx, e.providerID, e.launchedAt(), 0)
	if err != nil {
		return 0, err
	}
	if v == ended {
		return 0, nil
	}
	if e.claim != nil {
		c.conditions(e.claim).SetTrue(karpv1.ConditionTypeInstanceTerminating)
	}
	if v == alive && inst.State == capacity.InstanceShuttingDown {
		return endPoll, nil
	}
	err = c.cloud.Terminate(ctx, capacity.InstanceID(e.providerID))
	if err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		c.event(e.claim, e.node, corev1.EventTypeWarning, reasonTerminationFailed, "Terminate",
			"it is tried again: %v", err)
		return 0, err
	}
	if v == unsure {
		return lookEvery, nil
	}
	return endPoll, nil
}

// removeNode lets the Node of an instance that has ended go, and with it the pods that no kubelet will say the end of: their
// controllers can make others at once, and an instance that gets the same name doesn't inherit them.
func (c *Controller) removeNode(ctx context.Context, e *ending) (time.Duration, error) {
	c.leases.forget(e.node.UID)
	if e.claim == nil {
		c.waits.forget(e.name())
	}
	if e.bindsInFlight() {
		return drainPoll, nil
	}
	if err := c.endPods(ctx, e.node.Name); err != nil {
		return 0, err
	}
	if e.node.DeletionTimestamp == nil {
		if err := c.deleteNode(ctx, e.node); err != nil {
			return 0, err
		}
	}
	_, err := c.patchNode(ctx, e.node.Name, e.node.UID, func(n *corev1.Node) { dropFinalizer(n) })
	if err != nil && !gone(err) {
		return 0, err
	}
	klog.FromContext(ctx).V(2).Info("Node ended", "node", klog.KObj(e.node), "instance", capacity.InstanceID(e.providerID))
	return 0, nil
}

// terminationDeadline is the moment at which a drain is over whatever is left, from the claim's terminationGracePeriod. It is
// written on the claim once, and may be moved there by hand; what can't be read there is no deadline, and said so.
func (c *Controller) terminationDeadline(claim *karpv1.NodeClaim) time.Time {
	if value, ok := claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; ok {
		t, err := time.Parse(time.RFC3339, value)
		if err != nil {
			c.event(claim, nil, corev1.EventTypeWarning, reasonTerminationFailed, "Drain",
				"annotation %s is ignored: %v", karpv1.NodeClaimTerminationTimestampAnnotationKey, err)
			return time.Time{}
		}
		return t
	}
	if claim.Spec.TerminationGracePeriod == nil {
		return time.Time{}
	}
	deadline := claim.DeletionTimestamp.Add(claim.Spec.TerminationGracePeriod.Duration)
	if claim.Annotations == nil {
		claim.Annotations = map[string]string{}
	}
	claim.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey] = deadline.Format(time.RFC3339)
	c.event(claim, nil, corev1.EventTypeWarning, reasonGracePeriodExpiring, "Drain",
		"all pods will be deleted by %s", deadline.Format(time.RFC3339))
	return deadline
}

func (e *ending) launchedAt() time.Time {
	if e.claim != nil {
		return launchedAt(e.claim)
	}
	return e.node.CreationTimestamp.Time
}

// name is that of the claim, or of the Node if there is none.
func (e *ending) name() string {
	if e.claim != nil {
		return e.claim.Name
	}
	return e.node.Name
}

// expired says that the deadline has passed.
func (e *ending) expired() bool { return !e.deadline.IsZero() && !e.now.Before(e.deadline) }
