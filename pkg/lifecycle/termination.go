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
	// minDrain is how long a node is kept cordoned before its instance is terminated, for pods that were bound before every scheduler had
	// seen the taint.
	minDrain = 5 * time.Second
	// drainPoll is how often a drain is checked without an event.
	drainPoll = time.Second
	// endPoll is how often a terminating instance is looked up.
	endPoll = 2 * time.Second
)

// ending is the termination of a node. claim is nil for a Node whose claim is gone; node is nil when there is no Node.
type ending struct {
	claim      *karpv1.NodeClaim
	node       *corev1.Node // as last read or written
	providerID string
	// deadline is when the drain ends, whatever is left; zero: never.
	deadline time.Time
	now      time.Time
	// bindsInFlight reports whether pods are being bound to the Node; no others are let through any more.
	bindsInFlight func() bool
}

// step does one step of a termination. A wait that isn't zero means that the next step has to wait.
type step func(ctx context.Context, e *ending) (wait time.Duration, err error)

// finalize terminates a deleted claim's node step by step and removes the claim's finalizer.
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
		if err != nil { // they are protected from deletion; the claim has nothing left to wait for
			klog.FromContext(ctx).Info("Pods of a deleted Node could not be deleted", "node", l.claim.Status.NodeName, "err", err)
		}
	}
	dropFinalizer(l.claim)
	if !c.index.first(l.claim.Name, toldEnded) {
		return 0, nil // counted before; the cache doesn't show the deletion yet
	}
	terminations.WithLabelValues(pool(l.claim)).Observe(l.now.Sub(l.claim.DeletionTimestamp.Time).Seconds())
	klog.FromContext(ctx).V(2).Info("NodeClaim terminated", "instance", capacity.InstanceID(l.claim.Status.ProviderID))
	return 0, nil
}

// reconcileNode terminates a deleted managed Node that has no claim.
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

// end takes a node through the steps of its termination. From the start our own scheduler keeps pods off it. Nothing ran on a node whose
// kubelet never registered, so its instance is terminated first, and its pods are deleted without waiting for that.
func (c *Controller) end(ctx context.Context, e *ending) (time.Duration, error) {
	if e.node == nil {
		return c.endInstance(ctx, e)
	}
	e.bindsInFlight = func() bool { return c.close(e.node.Name, e.node.Spec.ProviderID) }
	e.bindsInFlight() // before the taint: pods that our own scheduler lets through until then are counted as being bound
	if wait, err := c.cordon(ctx, e); wait != 0 || err != nil {
		return wait, err
	}
	steps := []step{c.skipIfEnded, c.drain, c.detachVolumes, c.endInstance, c.removeNode}
	if !Posted(e.node) { // cordon has just read it live, the first time
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

// cordon keeps pods and load balancers off and starts the Node's deletion. Every terminating Node has the finalizer, so that it stays until
// its instance is gone.
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
			if n.DeletionTimestamp == nil { // the API server rejects new finalizers on a deleted object
				addFinalizer(n)
			}
		})
		if gone(err) {
			return drainPoll, nil // try again with what the informer shows then
		} else if err != nil {
			return 0, err
		}
		klog.FromContext(ctx).V(2).Info("Cordoned a terminating node", "node", klog.KObj(node))
		e.node = node
	}
	if e.node.DeletionTimestamp == nil {
		return 0, c.deleteNode(ctx, e.node)
	}
	return 0, nil
}

// skipIfEnded checks whether there is anything left to drain: a Ready kubelet lives, whatever the cloud says.
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

// beginEnd terminates an instance without waiting for its end.
func (c *Controller) beginEnd(ctx context.Context, e *ending) (time.Duration, error) {
	_, err := c.endInstance(ctx, e)
	return 0, err
}

// abandonPods deletes the pods bound to a node whose kubelet never registered, unless it has done so just now.
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

// endInstance terminates the instance and waits until the cloud shows its end. It repeats the call until the instance is seen shutting
// down: an accepted call may be lost, and "not found" soon after a launch means nothing.
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
			"retrying: %v", err)
		return 0, err
	}
	if v == unsure {
		return lookEvery, nil
	}
	return endPoll, nil
}

// removeNode removes the Node of an instance that has ended, and the pods whose end no kubelet will report: their controllers can create
// others at once, and an instance that gets the same name doesn't inherit them.
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
	klog.FromContext(ctx).V(2).Info("Node terminated", "node", klog.KObj(e.node), "instance", capacity.InstanceID(e.providerID))
	return 0, nil
}

// terminationDeadline returns when a drain ends whatever is left, from the claim's terminationGracePeriod. It is recorded on the claim
// once, where a user may change it; a value that can't be parsed is no deadline, and gets an event.
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

// name returns the name of the claim, or of the Node if there is no claim.
func (e *ending) name() string {
	if e.claim != nil {
		return e.claim.Name
	}
	return e.node.Name
}

// expired reports whether the deadline has passed.
func (e *ending) expired() bool { return !e.deadline.IsZero() && !e.now.Before(e.deadline) }
