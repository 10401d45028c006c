package lifecycle

import (
	"context"
	"fmt"
	"time"

	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// life is one claim during one reconciliation. Stages change claim; it is saved once, after all of them.
type life struct {
	claim *karpv1.NodeClaim
	match match
	now   time.Time
	clock clock.Clock
	taken bool // the cloud has reclaimed the instance
}

// conditions is for setting the claim's conditions; read them with conditionTrue, which changes nothing.
func (l *life) conditions() status.ConditionSet {
	return l.claim.StatusConditions(status.WithClock(l.clock))
}

// stage does one step of a claim's lifecycle and returns when it has to run again; 0: when something changes.
type stage interface {
	reconcile(ctx context.Context, l *life) (time.Duration, error)
}

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
	stages := c.alive
	if claim.DeletionTimestamp != nil {
		stages = c.deleted
	}
	l := &life{claim: claim, match: c.nodes.match(claim), now: c.clock.Now(), clock: c.clock}
	if claim.DeletionTimestamp == nil {
		addFinalizer(claim) // for standalone NodeClaims; those that Dovetail creates have it from the beginning
	}

	var after time.Duration
	var errs []error
	for _, s := range stages {
		d, err := s.reconcile(ctx, l)
		after = soonest(after, d)
		errs = append(errs, err)
	}
	errs = append(errs, c.claims.save(ctx, stored, claim))
	return after, firstConflict(errs)
}

// forget drops what is remembered about a deleted claim, and enqueues Nodes that it may have left.
func (c *Controller) forget(name string) {
	providerID, nodeName := c.index.forget(name)
	nodes := c.nodes.byProviderID(providerID)
	c.forgotten(name, providerID, nodeName, nodes)
	for _, n := range nodes {
		c.queue.add(key{node: n.Name})
	}
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

// soonest returns the shorter of two waits; 0 means that there is none to wait for, so it gives way to the other.
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
