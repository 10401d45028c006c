package launch

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// one launches a single claim of the batch, as a test, if the cloud had no capacity for any of the batch's offerings at the last try, and reports
// whether to launch the other claims, too. Without it each try in a shortage, one every few minutes, would write, record and delete all claims of
// the batch for nothing. Pods that fit other offerings wait only for this one call: they are planned for again at once.
func (b *batchLauncher) one(ctx context.Context, w *batch) (others bool) {
	if w.purpose != capacity.ForPods || len(w.claims) < 2 || !b.scarce.All(w.offers, b.calls.clock.Now()) {
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
