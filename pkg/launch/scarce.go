package launch

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// scarceMemory is how long after its last refusal an offering is tried with a single claim first. The cloud provider remembers refusals for
// a much shorter time, so an offering with much demand is refused again before this ends.
const scarceMemory = 15 * time.Minute

// scarcity remembers the offerings for which the cloud had no capacity at the last try. Safe for concurrent use.
type scarcity struct {
	mu      sync.Mutex
	refused map[capacity.OfferKey]time.Time
}

// learn records what a launch call returned and what it was refused.
func (s *scarcity) learn(got []capacity.Instance, refused []capacity.OfferKey, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, at := range s.refused {
		if now.Sub(at) > scarceMemory {
			delete(s.refused, k)
		}
	}
	for _, k := range refused {
		if s.refused == nil {
			s.refused = map[capacity.OfferKey]time.Time{}
		}
		s.refused[k] = now
	}
	for k := range s.refused {
		for i := range got {
			if k.InstanceType == got[i].InstanceType && k.Zone == got[i].Zone && k.CapacityType == got[i].CapacityType {
				delete(s.refused, k)
				break
			}
		}
	}
}

// all reports whether the cloud had no capacity for any of the offerings at the last try.
func (s *scarcity) all(offers []capacity.NodeOffer, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offers {
		if at, ok := s.refused[o.Key()]; !ok || now.Sub(at) > scarceMemory {
			return false
		}
	}
	return len(offers) > 0
}

// one launches a single claim of the batch if all offerings of the batch were refused the last time, and reports whether to launch the
// other claims, too. Otherwise each try in a shortage, one every few minutes, would write, record and delete all claims of the batch for
// nothing. Pods that fit other offerings wait only for this one call: they are planned for again at once.
func (b *batchLauncher) one(ctx context.Context, w *batch) (others bool) {
	if w.purpose != capacity.ForPods || len(w.claims) < 2 || !b.scarce.all(w.offers, b.calls.clock.Now()) {
		return true
	}
	first := *w
	first.claims = nil
	for len(w.claims) > 0 && len(first.claims) == 0 {
		if c := w.claims[0]; w.needs(c) {
			first.claims = []*capacity.Claim{c}
		} else {
			b.cleanup.forget(c.Name)
		}
		w.claims = w.claims[1:]
	}
	b.launch(ctx, &first)
	if ctx.Err() != nil {
		return false
	}
	if w.offers = b.left(w, nil); len(w.offers) > 0 {
		return true
	}
	klog.FromContext(ctx).V(2).Info("There is still no capacity for any of a launch batch's offerings; its other claims are not written", "pool", w.pool.Name, "claims", len(w.claims))
	b.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for _, c := range w.claims {
			l.ClaimGone(c.Name, "there is no capacity for any of its offerings", true, now)
		}
	})
	for _, c := range w.claims {
		b.cleanup.forget(c.Name)
	}
	b.triggers.Recount()
	return false
}
