package launch

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// delays reports why launch calls fail while they are still repeated. Safe for concurrent use.
type delays struct {
	claims   *claimCache
	calls    *calls
	refusals *provisioning.Refusals

	mu     sync.Mutex
	byPool map[string]string // the reason last reported in an event on each pool, by its name
}

// reasonLaunchDelayed is the reason of events and conditions about a failed launch call that may work when it is repeated.
const reasonLaunchDelayed = "LaunchDelayed"

// delay is why a launch batch isn't launched yet, as last reported to its pods; empty: no call has failed.
type delay string

// after returns a text with the reason appended.
func (d delay) after(text string) string {
	if d == "" {
		return text
	}
	return text + ": " + string(d)
}

// delayed reports why the last launch call failed to the pods whose nodes it should have launched: after the first failure and whenever the
// message changes. The same call is repeated for minutes, and users want to know the cause before that ends. The pool gets one event for
// all of its launches. The claims get a condition: should liveness end them, that is the cause it reports.
func (d *delays) delayed(ctx context.Context, rec *capacity.LaunchBatch, claims []*capacity.Claim, told *delay, why string) {
	why = objects.OneLine(why)
	if why == "" || *told == delay(why) {
		return
	}
	*told = delay(why)
	for _, c := range claims {
		d.refusals.TellPods(c.Name, reasonLaunchDelayed, fmt.Sprintf("node %s is not launched yet, and is tried again: %s", c.Name, why))
	}
	d.mu.Lock()
	news := d.byPool[rec.Pool] != why
	d.byPool[rec.Pool] = why
	d.mu.Unlock()
	if news && rec.Pool != "" {
		d.claims.TellPool(rec.Pool, corev1.EventTypeWarning, reasonLaunchDelayed, "launches fail, and are tried again: "+why)
	}
	d.calls.each(ctx, len(claims), func(i int) { // before the next launch call, because this must not overwrite what that records
		if err := d.claims.RecordRefused(ctx, claims[i].Name, reasonLaunchDelayed, why, true); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(3).Info("Could not record why a launch is delayed", "nodeClaim", claims[i].Name, "err", err)
		}
	})
}

// delayOver records that a launch of the pool has worked or was given up, so that the next failure is reported again.
func (d *delays) delayOver(pool string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.byPool, pool)
}
