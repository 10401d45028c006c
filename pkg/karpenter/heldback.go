package karpenter

import (
	"context"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	reasonHeldBack = "HeldBack"
	reasonResumed  = "Resumed"
)

// classStatus is the resolved status of a class, kept while nothing may be written.
type classStatus struct {
	generation int64
	status     ec2nc.EC2NodeClassStatus
}

// heldBack reports whether writes are paused now, and records an event with the reason if the object is a NodePool.
func (p *poolStatus) heldBack(k statusKey) bool {
	why := p.hold()
	if np := p.poolObject(k.name); np != nil && k.kind == nodePools.Kind {
		p.tellHeld(np, why)
	}
	return why != ""
}

// tellHeld records one event on a NodePool when writes are paused, with the reason, and one when they resume.
func (p *poolStatus) tellHeld(np *karpv1.NodePool, why string) {
	if why == unreadLeases {
		return // lasts only a moment at start
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

// later keeps the resolved status of a class until it may be written.
func (s *Store) later(name string, generation int64, st ec2nc.EC2NodeClassStatus) {
	s.mu.Lock()
	s.delayed[name] = classStatus{generation, st}
	s.mu.Unlock()
	s.status.changed(nodeClasses, name)
}

// catchUp writes the status that was kept for a class.
func (s *Store) catchUp(ctx context.Context, name string) error {
	s.mu.Lock()
	kept, ok := s.delayed[name]
	delete(s.delayed, name)
	s.mu.Unlock()
	if !ok {
		return nil
	}
	err := s.SetNodeClassStatus(ctx, name, kept.generation, kept.status)
	if err != nil {
		s.mu.Lock()
		if _, newer := s.delayed[name]; !newer {
			s.delayed[name] = kept
		}
		s.mu.Unlock()
	}
	return err
}
