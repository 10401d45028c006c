package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// life is one claim during one reconciliation. Stages change claim; it is saved once, after all of them.
type life struct {
	claim *karpv1.NodeClaim
	match match
	now   time.Time
	taken bool // the cloud has reclaimed the instance
}

// stage does one step of a claim's lifecycle and returns when it has to run again; 0: when something changes.
type stage func(ctx context.Context, l *life) (time.Duration, error)

// reconcileClaim takes a claim through the stages. A stage that fails doesn't keep the others from running.
func (c *Controller) reconcileClaim(ctx context.Context, name string) (time.Duration, error) {
	claim := &karpv1.NodeClaim{}
	if err := c.claims.Get(ctx, client.ObjectKey{Name: name}, claim); apierrors.IsNotFound(err) {
		c.forget(name)
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading NodeClaim: %w", err)
	}
	c.index.observe(claim)
	stored := claim.DeepCopy()
	l := &life{claim: claim, match: c.matchClaim(claim), now: c.clock.Now()}
	stages := []stage{
		c.register, c.tell, c.initialize, c.compare, c.recreate, c.keepLease, c.endBootingPods, c.tag, c.recordPodEvents, c.settle, c.cascade, c.liveness,
	}
	if claim.DeletionTimestamp != nil {
		stages = []stage{c.finalize}
	} else {
		addFinalizer(claim) // for standalone NodeClaims; ours are created with it
	}

	var after time.Duration
	var errs []error
	for _, s := range stages {
		d, err := s(ctx, l)
		after = soonest(after, d)
		errs = append(errs, err)
	}
	errs = append(errs, c.save(ctx, stored, claim))
	return after, firstConflict(errs)
}

// forget drops what is remembered about a deleted claim, and enqueues Nodes that it may have left.
func (c *Controller) forget(name string) {
	providerID, nodeName := c.index.forget(name)
	c.sightings.forget(capacity.InstanceID(providerID))
	c.podEvents.forget(nodeName)
	c.waits.forget(name)
	for _, n := range c.nodesByProviderID(providerID) {
		c.leases.forget(n.UID)
		c.enqueue(key{node: n.Name})
	}
}

// save writes what the stages changed. It writes the status first, because the last change of the metadata may delete the object.
func (c *Controller) save(ctx context.Context, stored, claim *karpv1.NodeClaim) error {
	want := claim.DeepCopy()
	if !equality.Semantic.DeepEqual(stored.Status, want.Status) {
		obj := stored.DeepCopy()
		obj.Status = want.Status
		patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
		if err := c.claims.Status().Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing the status of NodeClaim %s: %w", claim.Name, err)
		}
		stored = obj
	}
	if !equality.Semantic.DeepEqual(stored.Annotations, want.Annotations) || !equality.Semantic.DeepEqual(stored.Finalizers, want.Finalizers) {
		obj := stored.DeepCopy()
		obj.Annotations, obj.Finalizers = want.Annotations, want.Finalizers
		patch := client.MergeFromWithOptions(stored, client.MergeFromWithOptimisticLock{})
		if err := c.claims.Patch(ctx, obj, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("writing NodeClaim %s: %w", claim.Name, err)
		}
	}
	return nil
}

// deleteClaim deletes a claim. The UID precondition protects a new claim of the same name.
func (c *Controller) deleteClaim(ctx context.Context, claim *karpv1.NodeClaim) error {
	err := c.claims.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", claim.Name, err)
	}
	return nil
}

// conditions is for setting conditions; read them with conditionTrue, which changes nothing.
func (c *Controller) conditions(claim *karpv1.NodeClaim) status.ConditionSet {
	return claim.StatusConditions(status.WithClock(c.clock))
}

func condition(claim *karpv1.NodeClaim, kind string) *status.Condition {
	return claim.StatusConditions(status.WithObservedOnly()).Get(kind)
}

func conditionTrue(claim *karpv1.NodeClaim, kind string) bool {
	cond := condition(claim, kind)
	return cond != nil && cond.Status == metav1.ConditionTrue
}

// launchedAt returns when the claim's instance became known, or the claim's creation if it isn't.
func launchedAt(claim *karpv1.NodeClaim) time.Time {
	if cond := condition(claim, karpv1.ConditionTypeLaunched); cond != nil && cond.Status == metav1.ConditionTrue {
		return cond.LastTransitionTime.Time
	}
	return claim.CreationTimestamp.Time
}

// soonest returns the earlier of two waits; 0 is no wait at all.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// firstConflict joins errors. If one is a conflict it returns only that, because everything is retried with fresher objects.
func firstConflict(errs []error) error {
	for _, err := range errs {
		if apierrors.IsConflict(err) {
			return err
		}
	}
	return utilerrors.NewAggregate(errs)
}

// event records an event on a claim, and on its Node when there is one.
func (c *Controller) event(claim *karpv1.NodeClaim, node *corev1.Node, kind, reason, action, note string, args ...any) {
	if claim != nil {
		c.recorder.Eventf(claim, nil, kind, reason, action, note, args...)
	}
	if node != nil {
		c.recorder.Eventf(node, nil, kind, reason, action, note, args...)
	}
}
