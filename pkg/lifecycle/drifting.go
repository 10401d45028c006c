package lifecycle

import (
	"context"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/drift"
)

// driftEvery is how often the pools are looked at for changes that may have made nodes drift.
const driftEvery = 10 * time.Second

// drifting sets the condition Drifted.
type drifting struct {
	conditions *drift.Conditions
	queue      *queue
}

func (d *drifting) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	return d.conditions.Reconcile(ctx, l.claim, l.conditions())
}

// round enqueues the claims of pools that have changed, and returns when to do so again.
func (d *drifting) round(ctx context.Context) (time.Duration, error) {
	claims, err := d.conditions.Round(ctx)
	for _, name := range claims {
		d.queue.add(key{claim: name})
	}
	return driftEvery, err
}
