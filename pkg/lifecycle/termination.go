package lifecycle

import (
	"context"
	"errors"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
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
	clock    clock.Clock
	// bindsInFlight cordons the Node for our own scheduler, and reports whether pods that were let through before are still being bound there.
	bindsInFlight func() bool
}

// step does one step of a termination. If wait isn't zero, the step isn't finished: it is repeated after that time, and no later step runs before.
type step func(ctx context.Context, e *ending) (wait time.Duration, err error)

// termination takes nodes from their cordon to their end, with or without a claim.
type termination struct {
	nodes     *nodes
	pods      *boundPods
	cloud     Instances
	sightings *sightings
	drain     *drain
	volumes   *volumeDetachment
	leases    *leases
	waits     *waits
	recorder  recorder
	close     func(node, providerID string) (bindsInFlight bool) // cordons a Node for our own scheduler (Config.Close)
}

// end takes a node through the steps of its termination. From the start our own scheduler keeps pods off it. Nothing ran on a node whose
// kubelet never registered, so its instance is terminated first, and its pods are deleted without waiting for that.
func (t *termination) end(ctx context.Context, e *ending) (time.Duration, error) {
	if e.node == nil {
		return t.endInstance(ctx, e)
	}
	e.bindsInFlight = func() bool { return t.close(e.node.Name, e.node.Spec.ProviderID) }
	e.bindsInFlight() // before the taint: pods that our own scheduler lets through until then are counted as being bound
	if wait, err := t.cordon(ctx, e); wait != 0 || err != nil {
		return wait, err
	}
	steps := []step{t.skipIfEnded, t.drain.run, t.volumes.wait, t.endInstance, t.removeNode}
	if !objects.Posted(e.node) { // on the first call, cordon has just read the Node live
		steps = []step{t.beginEnd, t.abandonPods, t.endInstance, t.removeNode}
	}
	for _, s := range steps {
		wait, err := s(ctx, e)
		if errors.Is(err, errEnded) {
			return t.removeNode(ctx, e)
		}
		if wait != 0 || err != nil {
			return wait, err
		}
	}
	return 0, nil
}

// excludedAtEnd is the value of the label that keeps load balancers off a node that ends, as Karpenter sets it: a label with another value is
// someone else's.
const excludedAtEnd = "karpenter"

// errEnded: the instance is gone and the kubelet with it; there is nothing to drain or to wait for.
var errEnded = errors.New("instance has ended")

// cordon keeps pods and load balancers off and starts the Node's deletion. Every terminating Node has the finalizer, so that it stays until
// its instance is gone.
func (t *termination) cordon(ctx context.Context, e *ending) (time.Duration, error) {
	_, excluded := e.node.Labels[corev1.LabelNodeExcludeBalancers]
	if !hasTaint(e.node.Spec.Taints, &karpv1.DisruptedNoScheduleTaint) || !excluded ||
		e.node.DeletionTimestamp == nil && !hasFinalizer(e.node) {
		node, err := t.nodes.patch(ctx, e.node.Name, e.node.UID, func(n *corev1.Node) {
			dropTaint(n, karpv1.DisruptedTaintKey) // the same key may have another effect
			setTaint(n, karpv1.DisruptedNoScheduleTaint)
			if n.Labels == nil {
				n.Labels = map[string]string{}
			}
			if _, ok := n.Labels[corev1.LabelNodeExcludeBalancers]; !ok {
				n.Labels[corev1.LabelNodeExcludeBalancers] = excludedAtEnd
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
		return 0, t.nodes.remove(ctx, e.node)
	}
	return 0, nil
}

// skipIfEnded checks whether there is anything left to drain: a Ready kubelet lives, whatever the cloud says.
func (t *termination) skipIfEnded(ctx context.Context, e *ending) (time.Duration, error) {
	if objects.Ready(e.node) {
		return 0, nil
	}
	_, v, err := t.sightings.look(ctx, e.providerID, e.launchedAt(), endPoll)
	if err != nil {
		return 0, err
	}
	if v == ended {
		return 0, errEnded
	}
	return 0, nil
}

// beginEnd terminates an instance without waiting for its end.
func (t *termination) beginEnd(ctx context.Context, e *ending) (time.Duration, error) {
	_, err := t.endInstance(ctx, e)
	return 0, err
}

// abandonPods deletes the pods bound to a node whose kubelet has not registered. It reads the Node once more before: if the kubelet has
// registered in the meantime, it deletes nothing.
func (t *termination) abandonPods(ctx context.Context, e *ending) (time.Duration, error) {
	now, err := t.nodes.get(ctx, e.node.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	if objects.Posted(now) {
		return drainPoll, nil
	}
	return 0, t.pods.kill(ctx, e.node.Name, func(*corev1.Pod) bool { return true })
}

// endInstance terminates the instance and waits until the cloud shows its end. It repeats the call until the instance is seen shutting
// down: an accepted call may be lost, and "not found" soon after a launch means nothing.
func (t *termination) endInstance(ctx context.Context, e *ending) (time.Duration, error) {
	inst, v, err := t.sightings.look(ctx, e.providerID, e.launchedAt(), 0)
	if err != nil {
		return 0, err
	}
	if v == ended {
		return 0, nil
	}
	if e.claim != nil {
		e.conditions().SetTrue(karpv1.ConditionTypeInstanceTerminating)
	}
	if v == alive && inst.State == capacity.InstanceShuttingDown {
		return endPoll, nil
	}
	err = t.cloud.Terminate(ctx, capacity.InstanceID(e.providerID))
	if err != nil && !errors.Is(err, capacity.ErrInstanceNotFound) {
		t.recorder.event(e.claim, e.node, corev1.EventTypeWarning, reasonTerminationFailed, "Terminate",
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
func (t *termination) removeNode(ctx context.Context, e *ending) (time.Duration, error) {
	t.leases.written.forget(e.node.UID)
	if e.claim == nil {
		t.waits.forget(e.name())
	}
	if e.bindsInFlight() {
		return drainPoll, nil
	}
	if err := t.pods.endAll(ctx, e.node.Name); err != nil {
		return 0, err
	}
	if e.node.DeletionTimestamp == nil {
		if err := t.nodes.remove(ctx, e.node); err != nil {
			return 0, err
		}
	}
	_, err := t.nodes.patch(ctx, e.node.Name, e.node.UID, func(n *corev1.Node) { dropFinalizer(n) })
	if err != nil && !gone(err) {
		return 0, err
	}
	if err == nil {
		countNode(e)
	}
	klog.FromContext(ctx).V(2).Info("Node terminated", "node", klog.KObj(e.node), "instance", capacity.InstanceID(e.providerID))
	return 0, nil
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

// conditions is for setting the conditions of the claim, which there has to be.
func (e *ending) conditions() status.ConditionSet {
	return e.claim.StatusConditions(status.WithClock(e.clock))
}
