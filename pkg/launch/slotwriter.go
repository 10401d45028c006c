package launch

import (
	"context"
	"sync"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/records"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// slotWriter writes reservations (slots) to claims of nodes in flight or just initialized, so that they survive a restart. Safe for concurrent use.
type slotWriter struct {
	claims *claimCache
	calls  *calls

	mu        sync.Mutex
	recording map[string]bool // by name, the claims whose slots are being written; true: the slots have changed since the write began
}

// kept returns, for the existing nodes that pods are placed on, the claims on which the reservations have to be recorded to survive a restart, by
// node name. The ledger doesn't know the claim of an initialized node on which nothing is reserved, so that claim is found by its node's name.
func (s *slotWriter) kept(placed []capacity.Placement, existing map[string]provisioning.Existing) map[string]string {
	out, up := map[string]string{}, map[string]bool{}
	for i := range placed {
		switch there, ok := existing[placed[i].Node]; {
		case !ok || !there.Status.Managed:
		case there.Status.Initialized:
			up[placed[i].Node] = true
		case there.Claim != "":
			out[placed[i].Node] = there.Claim
		}
	}
	if len(up) == 0 {
		return out
	}
	now := s.calls.clock.Now()
	for _, c := range s.claims.Claims() {
		if up[c.NodeName] && records.Kept(c, now) {
			out[c.NodeName] = c.Name
		}
	}
	return out
}

// recordSlots writes the reservations on a claim's node to the claim's annotation, so that they survive a restart. It writes every reservation
// that was ever made there: after a restart, the pods themselves show which of them are bound. One write per claim at a time, in the background.
func (s *slotWriter) recordSlots(ctx context.Context, claim string, slots []capacity.Slot) {
	if !s.claims.promise(claim, slots) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, busy := s.recording[claim]; busy {
		s.recording[claim] = true // the slots are written once more when the write under way has ended
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
