package launch

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// slotWriter records reservations on the claims of nodes in flight, so that they survive a restart. Safe for concurrent use.
type slotWriter struct {
	claims *claimCache
	calls  *calls

	mu        sync.Mutex
	recording map[string]bool // claims whose slots are being written; true: they have changed since
}

// recordSlots writes the reservations on a claim in flight to its annotation, so that they survive a restart. It writes every reservation
// that was ever made there: pods that have been bound since are recognized from the pods. One write per claim at a time, in the background.
func (s *slotWriter) recordSlots(ctx context.Context, claim string, slots []capacity.Slot) {
	if !s.claims.promise(claim, slots) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.recording[claim]; busy {
		s.recording[claim] = true // once more when that write is through
		return
	}
	s.recording[claim] = false
	s.calls.background(ctx, func() { s.writeSlots(ctx, claim) })
}

// writeSlots writes the reservations once. If they have changed meanwhile, the next write queues behind those of other claims.
func (s *slotWriter) writeSlots(ctx context.Context, claim string) {
	if c := s.claims.Current(claim); c != nil {
		if err := s.claims.RecordSlots(ctx, claim, c.Slots); err != nil {
			// After a restart these pods are planned for anew, on the same node if it still has the capacity.
			klog.FromContext(ctx).V(3).Info("Could not record the pods planned for a claim", "nodeClaim", claim, "err", err)
		}
	}
	if s.recordAgain(ctx, claim) {
		s.calls.background(ctx, func() { s.writeSlots(ctx, claim) })
	}
}

// recordAgain ends a write of reservations, or reports that they have changed and have to be written again.
func (s *slotWriter) recordAgain(ctx context.Context, claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recording[claim] && ctx.Err() == nil {
		s.recording[claim] = false
		return true
	}
	delete(s.recording, claim)
	return false
}
