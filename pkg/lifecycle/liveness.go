package lifecycle

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	launchTimeout = capacity.LaunchTimeout
	// watchEvery is how often the instance of a node that isn't Ready is looked up.
	watchEvery = 15 * time.Second
	// nodeMissing is how long a registered node may be without Node object: one that is deleted and created anew is back within that time.
	nodeMissing = time.Minute
)

// cascade deletes the claim of a registered Node that was deleted. Before its registration a Node has no finalizer; when it is deleted then, the
// stage recreation decides whether it is created again.
type cascade struct{ claims claims }

func (c *cascade) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || node.DeletionTimestamp == nil || !hasFinalizer(node) {
		return 0, nil
	}
	klog.FromContext(ctx).V(2).Info("Node was deleted, deleting its NodeClaim", "node", klog.KObj(node))
	return 0, c.claims.end(ctx, l.claim)
}

// liveness gives up a claim that will not become a node, or no longer is one.
type liveness struct {
	nodes               *nodes
	sightings           *sightings
	waits               *waits
	late                *lateInitialization
	surrender           *surrender
	registrationTimeout time.Duration
	missing             memory[string, time.Time] // claim: since when its registered Node has been missing
}

func (s *liveness) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	claim := l.claim
	if !conditionTrue(claim, karpv1.ConditionTypeLaunched) {
		since := claim.CreationTimestamp.Time
		if launched := condition(claim, karpv1.ConditionTypeLaunched); launched != nil {
			if launched.IsFalse() && launched.Reason == reasonPaused {
				s.waits.forget(claim.Name) // its time begins when the spending guard allows the launch
				return 0, nil
			}
			since = later(since, launched.LastTransitionTime.Time)
		}
		if wait := s.waits.left(claim.Name, "launch", since, launchTimeout, l.now); wait > 0 {
			return wait, nil
		}
		why := fmt.Sprintf("nothing was launched within %s", launchTimeout)
		if launched := condition(claim, karpv1.ConditionTypeLaunched); launched != nil && launched.Reason == reasonLaunchDelayed {
			why += ": " + launched.Message
		}
		return 0, s.surrender.giveUp(ctx, l, reasonLaunchTimeout, why)
	}
	if claim.Status.ProviderID == "" {
		return 0, nil // launched; the status is being written
	}
	if !conditionTrue(claim, karpv1.ConditionTypeRegistered) {
		wait := s.waits.left(claim.Name, "registration", launchedAt(claim), s.registrationTimeout, l.now)
		if wait <= 0 {
			return 0, s.surrender.giveUp(ctx, l, reasonRegistrationTimeout, fmt.Sprintf("no kubelet registered within %s", s.registrationTimeout))
		}
		after, err := s.checkInstance(ctx, l)
		return soonest(wait, after), err
	}
	if l.match.node == nil {
		return s.checkNode(ctx, l)
	}
	s.missing.forget(claim.Name)
	var late, after time.Duration
	var err error
	if !conditionTrue(claim, karpv1.ConditionTypeInitialized) {
		late, err = s.late.check(ctx, l)
	}
	if err == nil && l.match.node.DeletionTimestamp == nil && !objects.Ready(l.match.node) {
		after, err = s.checkInstance(ctx, l)
	}
	return soonest(late, after), err
}

// checkInstance checks whether the instance of a node that isn't Ready still exists.
func (s *liveness) checkInstance(ctx context.Context, l *life) (time.Duration, error) {
	inst, v, err := s.sightings.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), lookEvery)
	if err != nil {
		return 0, err
	}
	l.taken = inst.Taken
	switch {
	case v == ended && inst.State == capacity.InstanceTerminated:
		return 0, s.surrender.giveUp(ctx, l, reasonInstanceEnded, "the instance is "+inst.Fate())
	case v == ended:
		return 0, s.surrender.giveUp(ctx, l, reasonInstanceEnded, "the instance is gone")
	case v == unsure:
		return lookEvery, nil
	}
	switch inst.State {
	case capacity.InstancePending, capacity.InstanceRunning:
		return watchEvery, nil
	default:
		return 0, s.surrender.giveUp(ctx, l, reasonInstanceEnded, "the instance is "+inst.Fate())
	}
}

// checkNode gives up an instance whose registered Node is gone without its finalizer having run: pods can't be scheduled there any more,
// and nothing else would ever terminate it.
func (s *liveness) checkNode(ctx context.Context, l *life) (time.Duration, error) {
	if node, err := s.nodes.get(ctx, l.claim.Status.NodeName); !apierrors.IsNotFound(err) {
		s.missing.forget(l.claim.Name)
		switch {
		case err != nil:
			return 0, err
		case node.Spec.ProviderID != "" && node.Spec.ProviderID != l.claim.Status.ProviderID:
			return s.checkInstance(ctx, l) // another instance has the name: perhaps because this one has ended
		}
		return lookEvery, nil // the informer is behind
	}
	since := s.missing.update(l.claim.Name, func(since time.Time, ok bool) time.Time {
		if !ok {
			return l.now
		}
		return since
	})
	if wait := since.Add(nodeMissing).Sub(l.now); wait > 0 {
		return wait, nil
	}
	return 0, s.surrender.giveUp(ctx, l, reasonNodeMissing, fmt.Sprintf("Node %s is gone", l.claim.Status.NodeName))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
