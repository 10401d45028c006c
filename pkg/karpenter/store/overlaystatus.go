package store

import (
	"cmp"
	"context"

	"github.com/awslabs/operatorpkg/status"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// anyOverlay is queued when the pools or types that overlays apply to have changed, but no overlay has.
const anyOverlay = ""

func (s *Store) overlayChanged(before, after *karpv1alpha1.NodeOverlay) {
	name := cmp.Or(after, before).Name
	if s.overlaid.Put(name, after) {
		s.tellPool()
	}
	s.status.changed(karpenter.NodeOverlays, name)
}

// TypesChanged must be called when Sources.InstanceTypes may return something else.
func (s *Store) TypesChanged() {
	s.status.enqueue(statusKey{karpenter.NodeOverlays.Kind, anyOverlay}, countDelay)
}

// Overlaid returns an instance type as changed by the overlays of a pool.
func (s *Store) Overlaid(pool string, t *capacity.InstanceType) *capacity.InstanceType {
	return s.overlaid.TypeFor(pool, t)
}

// judgeOverlays checks which overlays can be applied to the current pools. Overlays whose result has changed are queued for a status
// update.
func (p *poolStatus) judgeOverlays() {
	p.Pools(p.sources.InstanceTypes)
}

func (p *poolStatus) overlay(ctx context.Context, base *karpv1alpha1.NodeOverlay) error {
	o := base.DeepCopy()
	set := o.StatusConditions(status.WithClock(p.clock))
	by := p.nodeClass.ManagedBy
	if foundByAnother(set.Get(karpv1alpha1.ConditionTypeValidationSucceeded), by) && by != "" {
		return nil // the other Dovetail has other pools, so its result may differ, and both would overwrite each other's condition
	}
	if reason, message := p.overlaid.Problem(o.Name); message != "" {
		if message = shorten(message); by != "" {
			message += foundBy(by)
		}
		set.SetFalse(karpv1alpha1.ConditionTypeValidationSucceeded, reason, message)
	} else {
		set.SetTrue(karpv1alpha1.ConditionTypeValidationSucceeded)
	}
	return save(ctx, p, base, o, func() (any, any) { return base.Status, o.Status })
}
