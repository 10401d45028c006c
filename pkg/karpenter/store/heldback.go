package store

import (
	"context"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

const (
	reasonHeldBack = "HeldBack"
	reasonResumed  = "Resumed"
)

// heldBack reports whether writes are paused now, and records an event with the reason if the object is a NodePool.
func (p *poolStatus) heldBack(k statusKey) bool {
	err := p.sources.Hold()
	if np := p.poolObject(k.name); np != nil && k.kind == karpenter.NodePools.Kind {
		p.tellHeld(np, err)
	}
	return err != nil
}

// tellHeld records one event on a NodePool when writes are paused, with the reason, and one when they resume.
func (p *poolStatus) tellHeld(np *karpv1.NodePool, err error) {
	if err == capacity.ErrOwnerUnknown {
		return // at start it isn't known for a moment who owns the objects; if the leases can't be read, the error wraps the reason, and is told
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	before, told := p.told.Swap(np.UID, why)
	switch {
	case told && before == why:
	case why != "":
		p.recorder.Eventf(np, nil, corev1.EventTypeWarning, reasonHeldBack, "Launch", "%s", shorten(why))
	case told:
		p.recorder.Eventf(np, nil, corev1.EventTypeNormal, reasonResumed, "Launch", "Resumed: nodes are launched and terminated again")
	}
}

// later keeps the status that a class was resolved to until it may be written.
func (s *Store) later(of status.Object) {
	s.mu.Lock()
	s.delayed[of.GetName()] = of
	s.mu.Unlock()
	s.status.changed(s.classes.CustomKind, of.GetName())
}

// keeps reports whether a status of the class is held back, to be written later.
func (s *Store) keeps(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.delayed[name]
	return ok
}

// catchUp writes the status that was kept for a class while writes were paused. If a newer status arrives meanwhile, that is kept and the class is
// queued, so that catchUp is called again.
func (s *Store) catchUp(ctx context.Context, name string) error {
	s.mu.RLock()
	kept, ok := s.delayed[name]
	s.mu.RUnlock()
	if !ok {
		return nil
	}
	if s.sources.Hold() != nil {
		s.status.changed(s.classes.CustomKind, name)
		return nil
	}
	if err := s.writeClassStatus(ctx, kept); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.delayed[name] == kept {
		delete(s.delayed, name)
	}
	return nil
}
