package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	launchTimeout = capacity.LaunchTimeout
	// DefaultRegistrationTimeout is how long after its launch an instance may be without kubelet.
	DefaultRegistrationTimeout = 15 * time.Minute
	// initializationTimeout is how long after its registration a node may stay unfit for what it was bought for. Karpenter waits for ever;
	// the planned pods would wait with it, and the node is paid for.
	initializationTimeout = 15 * time.Minute
	// DefaultStartupTimeout is that time for a node that is Ready, that pods wait for, and that lacks nothing but the removal of startup
	// taints: the agents that remove them may have much to do, and another instance would have to wait for the same.
	DefaultStartupTimeout = time.Hour
	// awaitedEvery is how often to check whether pods still wait for such a node.
	awaitedEvery = time.Minute
	// watchEvery is how often the instance of a node that isn't Ready is looked up.
	watchEvery = 15 * time.Second
	// nodeMissing is how long a registered node may be without Node object: a replaced one is back within that time.
	nodeMissing = time.Minute
)

// cascade deletes the claim of a registered Node that was deleted. Before registration Nodes have no finalizer: see recreate.
func (c *Controller) cascade(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || node.DeletionTimestamp == nil || !hasFinalizer(node) {
		return 0, nil
	}
	klog.FromContext(ctx).V(2).Info("Node was deleted, deleting its NodeClaim", "node", klog.KObj(node))
	return 0, c.deleteClaim(ctx, l.claim)
}

// liveness gives up a claim that will not become a node, or no longer is one.
func (c *Controller) liveness(ctx context.Context, l *life) (time.Duration, error) {
	claim := l.claim
	if !conditionTrue(claim, karpv1.ConditionTypeLaunched) {
		since := claim.CreationTimestamp.Time
		if launched := condition(claim, karpv1.ConditionTypeLaunched); launched != nil {
			if launched.IsFalse() && launched.Reason == reasonPaused {
				c.waits.forget(claim.Name) // its time begins when the spending guard allows the launch
				return 0, nil
			}
			since = later(since, launched.LastTransitionTime.Time)
		}
		if wait := c.left(claim.Name, "launch", since, launchTimeout, l.now); wait > 0 {
			return wait, nil
		}
		why := fmt.Sprintf("nothing was launched within %s", launchTimeout)
		if launched := condition(claim, karpv1.ConditionTypeLaunched); launched != nil && launched.Reason == reasonLaunchDelayed {
			why += ": " + launched.Message
		}
		return 0, c.giveUp(ctx, l, reasonLaunchTimeout, why)
	}
	if claim.Status.ProviderID == "" {
		return 0, nil // launched; the status is being written
	}
	if !conditionTrue(claim, karpv1.ConditionTypeRegistered) {
		wait := c.left(claim.Name, "registration", launchedAt(claim), c.registrationTimeout, l.now)
		if wait <= 0 {
			return 0, c.giveUp(ctx, l, reasonRegistrationTimeout, fmt.Sprintf("no kubelet registered within %s", c.registrationTimeout))
		}
		after, err := c.checkInstance(ctx, l)
		return soonest(wait, after), err
	}
	if l.match.node == nil {
		return c.checkNode(ctx, l)
	}
	c.index.found(claim.Name)
	var late, after time.Duration
	var err error
	if !conditionTrue(claim, karpv1.ConditionTypeInitialized) {
		late, err = c.checkInitialized(ctx, l)
	}
	if err == nil && l.match.node.DeletionTimestamp == nil && !objects.Ready(l.match.node) {
		after, err = c.checkInstance(ctx, l)
	}
	return soonest(late, after), err
}

// checkInitialized gives up a node that doesn't become fit for what it was bought for. A Ready node with pods is of use and stays.
func (c *Controller) checkInitialized(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	since := condition(l.claim, karpv1.ConditionTypeRegistered).LastTransitionTime.Time
	if wait := c.left(l.claim.Name, "initialization", since, initializationTimeout, l.now); wait > 0 {
		return wait, nil
	}
	_, why := c.uninitialized(node, l.claim)
	if why == "" || node.DeletionTimestamp != nil {
		return 0, nil // initialization is being written
	}
	bound, err := pods.OnNode(c.pods.GetIndexer(), node.Name)
	if err != nil {
		return 0, err
	}
	if objects.Ready(node) && slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, l.now) }) {
		c.event(l.claim, node, corev1.EventTypeWarning, reasonInitTimeout, "Check", "not initialized within %s, but pods run there: %s", initializationTimeout, why)
		return initializationTimeout, nil
	}
	limit := initializationTimeout
	if c.onlyStartupTaints(node, l.claim) && c.awaited(l.claim.Name) {
		limit = c.startupTimeout
		if wait := c.left(l.claim.Name, "startup taints", since, limit, l.now); wait > 0 {
			c.delayed(l, why, since.Add(limit))
			return min(wait, awaitedEvery), nil
		}
	}
	return 0, c.giveUp(ctx, l, reasonInitTimeout, fmt.Sprintf("not initialized within %s of its registration: %s", limit, why))
}

// delayed records that a node is late and why it is not given up yet.
func (c *Controller) delayed(l *life, why string, until time.Time) {
	message := fmt.Sprintf("not initialized within %s: %s; pods wait for the node, and it is given up at %s if that stays so", initializationTimeout, why, until.UTC().Format(time.RFC3339))
	c.conditions(l.claim).SetTrueWithReason(objects.ConditionInitializationDelayed, "StartupTaintsExist", message)
	if c.index.first(l.claim.Name, toldDelayed) {
		c.event(l.claim, l.match.node, corev1.EventTypeWarning, reasonInitDelayed, "Check", "%s", message)
	}
}

// checkInstance checks whether the instance of a node that isn't Ready still exists.
func (c *Controller) checkInstance(ctx context.Context, l *life) (time.Duration, error) {
	inst, v, err := c.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), lookEvery)
	if err != nil {
		return 0, err
	}
	l.taken = inst.Taken
	switch {
	case v == ended && inst.State == capacity.InstanceTerminated:
		return 0, c.giveUp(ctx, l, reasonInstanceEnded, "the instance is "+inst.Fate())
	case v == ended:
		return 0, c.giveUp(ctx, l, reasonInstanceEnded, "the instance is gone")
	case v == unsure:
		return lookEvery, nil
	}
	switch inst.State {
	case capacity.InstancePending, capacity.InstanceRunning:
		return watchEvery, nil
	default:
		return 0, c.giveUp(ctx, l, reasonInstanceEnded, "the instance is "+inst.Fate())
	}
}

// checkNode gives up an instance whose registered Node is gone without its finalizer having run: pods can't be scheduled there any more,
// and nothing else would ever terminate it.
func (c *Controller) checkNode(ctx context.Context, l *life) (time.Duration, error) {
	_, err := c.kube.CoreV1().Nodes().Get(ctx, l.claim.Status.NodeName, metav1.GetOptions{})
	if err == nil || !apierrors.IsNotFound(err) {
		c.index.found(l.claim.Name)
		if err != nil {
			return 0, fmt.Errorf("reading Node %s: %w", l.claim.Status.NodeName, err)
		}
		return lookEvery, nil // the informer is behind, or another instance has the name
	}
	since := c.index.missing(l.claim.Name, l.now)
	if wait := since.Add(nodeMissing).Sub(l.now); wait > 0 {
		return wait, nil
	}
	return 0, c.giveUp(ctx, l, reasonNodeMissing, fmt.Sprintf("Node %s is gone", l.claim.Status.NodeName))
}

// giveUp annotates the Node, so that the scheduler sees all of its taints, and deletes the claim; termination does the rest.
func (c *Controller) giveUp(ctx context.Context, l *life, reason, message string) error {
	node := l.match.node
	if node != nil && node.Labels[karpv1.NodeInitializedLabelKey] != "true" {
		_, err := c.patchNode(ctx, node.Name, node.UID, func(n *corev1.Node) {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[objects.AnnotationFailed] = message
		})
		if err != nil && !gone(err) {
			return err
		}
	}
	c.givingUp(l.claim.Name, message, c.faultOf(l, reason, message))
	if c.index.first(l.claim.Name, toldGivingUp) {
		c.event(l.claim, node, corev1.EventTypeWarning, reason, "Delete", "giving up NodeClaim %s: %s", l.claim.Name, message)
	}
	if err := c.deleteClaim(ctx, l.claim); err != nil {
		return err
	}
	if !c.index.first(l.claim.Name, toldGivenUp) {
		return nil // the cache doesn't show the deletion yet
	}
	disruptions.WithLabelValues(pool(l.claim), reason).Inc()
	if reason == reasonLaunchTimeout || reason == reasonRegistrationTimeout {
		c.failed(l.claim, message)
	}
	klog.FromContext(ctx).Info("Gave up a NodeClaim", "reason", reason, "message", message, "instance", capacity.InstanceID(l.claim.Status.ProviderID))
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
