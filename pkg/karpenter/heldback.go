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

// classStatus is what a class was resolved to while nothing could be written.
type classStatus struct {
	generation int64
	status     ec2nc.EC2NodeClassStatus
}

// heldBack says that nothing must be written on the object now; a NodePool is told why.
func (p *poolStatus) heldBack(k statusKey) bool {
	why := p.hold()
	if np := p.poolObject(k.name); np != nil && k.kind == nodePools.Kind {
		p.tellHeld(np, why)
	}
	return why != ""
}

// tellHeld tells a NodePool, once, why nothing happens, and when that is over.
func (p *poolStatus) tellHeld(np *karpv1.NodePool, why string) {
	if why == unreadLeases {
		return // for a moment, at start
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

// later keeps what a class was resolved to until it may be written.
func (s *Store) later(name string, generation int64, st ec2nc.EC2NodeClassStatus) {
	s.mu.Lock()
	s.delayed[name] = classStatus{generation, st}
	s.mu.Unlock()
	s.status.changed(nodeClasses, name)
}

// catchUp writes what was kept for a class.
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
