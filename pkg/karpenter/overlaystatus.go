package karpenter

import (
	"context"

	"github.com/awslabs/operatorpkg/status"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Reasons of a NodeOverlay's ValidationSucceeded condition, as Karpenter names them.
const (
	reasonRuntimeValidation = "RuntimeValidation"
	reasonConflict          = "Conflict"
)

// anyOverlay is looked at when what overlays apply to has changed, and none of them has.
const anyOverlay = ""

func (s *Store) overlayChanged(before, after *karpv1alpha1.NodeOverlay) {
	name := ""
	if after != nil {
		name = after.Name
	} else {
		name = before.Name
	}
	if s.overlaid.put(name, after) {
		s.tellPool()
	}
	s.status.changed(nodeOverlays, name)
}

// SetTypes says what node classes can run, for overlays to be judged also when nobody plans. To be called before Run.
func (s *Store) SetTypes(types func(nodeClass string) ([]*capacity.InstanceType, string)) {
	s.types = types
}

// TypesChanged says that SetTypes' function may answer differently.
func (s *Store) TypesChanged() {
	s.status.enqueue(statusKey{nodeOverlays.Kind, anyOverlay}, countDelay)
}

// Overlaid is an instance type as the overlays of a pool have it.
func (s *Store) Overlaid(pool string, t *capacity.InstanceType) *capacity.InstanceType {
	return s.overlaid.typeFor(pool, t)
}

// judgeOverlays finds out which overlays can be applied to the pools as they are now. Those of which something else is to be said are looked
// at.
func (p *poolStatus) judgeOverlays() {
	if p.types != nil {
		p.Pools(p.types)
	}
}

func (p *poolStatus) overlay(ctx context.Context, base *karpv1alpha1.NodeOverlay) error {
	o := base.DeepCopy()
	set := o.StatusConditions(status.WithClock(p.clock))
	if reason, message := p.overlaid.problem(o.Name); message != "" {
		set.SetFalse(karpv1alpha1.ConditionTypeValidationSucceeded, reason, shorten(message))
	} else {
		set.SetTrue(karpv1alpha1.ConditionTypeValidationSucceeded)
	}
	return save(ctx, p, base, o, func() (any, any) { return base.Status, o.Status })
}
