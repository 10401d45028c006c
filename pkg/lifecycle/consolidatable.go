package lifecycle

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// consolidatable sets the condition that says whether the claim's node has been without pod events for its pool's consolidateAfter. The condition is
// for users and their tools; disruption itself looks at the current pod events. The condition is computed from the recorded lastPodEventTime, so
// that it changes no more often than that.
type consolidatable struct {
	claims    client.Reader
	podEvents *podEvents
}

func (c *consolidatable) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	after, ok, err := c.consolidateAfter(ctx, l.claim)
	if err != nil {
		return 0, err
	}
	initialized := condition(l.claim, karpv1.ConditionTypeInitialized)
	if !ok || initialized == nil || !conditionTrue(l.claim, karpv1.ConditionTypeInitialized) {
		return 0, c.clear(l)
	}
	since := later(initialized.LastTransitionTime.Time, l.claim.Status.LastPodEventTime.Time)
	if wait := since.Add(after).Sub(l.now); wait > 0 {
		return wait, c.clear(l)
	}
	// A pod event that isn't recorded yet doesn't clear the condition, but keeps it from being set.
	if last, seen := c.podEvents.get(l.claim.Status.NodeName); seen {
		if wait := last.Add(after).Sub(l.now); wait > 0 {
			return wait, nil
		}
	}
	l.conditions().SetTrue(karpv1.ConditionTypeConsolidatable)
	return 0, nil
}

// consolidateAfter returns the consolidateAfter of the claim's pool; false: the pool's nodes are never consolidated, or there is no pool.
func (c *consolidatable) consolidateAfter(ctx context.Context, claim *karpv1.NodeClaim) (time.Duration, bool, error) {
	name := pool(claim)
	if name == "" {
		return 0, false, nil
	}
	p := &karpv1.NodePool{}
	if err := c.claims.Get(ctx, client.ObjectKey{Name: name}, p); apierrors.IsNotFound(err) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("reading NodePool %s: %w", name, err)
	}
	d := p.Spec.Disruption.ConsolidateAfter.Duration
	if d == nil || p.Spec.Replicas != nil {
		return 0, false, nil
	}
	return *d, true, nil
}

func (c *consolidatable) clear(l *life) error {
	if condition(l.claim, karpv1.ConditionTypeConsolidatable) == nil {
		return nil
	}
	if err := l.conditions().Clear(karpv1.ConditionTypeConsolidatable); err != nil {
		return fmt.Errorf("clearing a condition: %w", err)
	}
	return nil
}
