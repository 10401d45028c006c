package launch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

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
func (m *Launcher) delayed(ctx context.Context, rec *capacity.LaunchBatch, claims []*capacity.Claim, told *delay, why string) {
	why = oneLine(why)
	if why == "" || *told == delay(why) {
		return
	}
	*told = delay(why)
	for _, c := range claims {
		m.tellPods(c.Name, reasonLaunchDelayed, fmt.Sprintf("node %s is not launched yet, and is tried again: %s", c.Name, why))
	}
	m.mu.Lock()
	news := m.delays[rec.Pool] != why
	m.delays[rec.Pool] = why
	m.mu.Unlock()
	if news && rec.Pool != "" {
		m.claims.TellPool(rec.Pool, corev1.EventTypeWarning, reasonLaunchDelayed, "launches fail, and are tried again: "+why)
	}
	m.each(ctx, len(claims), func(i int) { // before the next call: if that works, its records must not be overwritten by this one
		if err := m.claims.RecordRefused(ctx, claims[i].Name, reasonLaunchDelayed, why, true); err != nil && ctx.Err() == nil {
			m.log(ctx).V(3).Info("Could not record why a launch is delayed", "nodeClaim", claims[i].Name, "err", err)
		}
	})
}

// delayOver records that a launch of the pool has worked or was given up, so that the next failure is reported again.
func (m *Launcher) delayOver(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.delays, pool)
}
