package launch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reasonLaunchDelayed: a launch call has failed that may work when it is repeated.
const reasonLaunchDelayed = "LaunchDelayed"

// delay is why a launch batch isn't launched yet, as its pods were told; empty: it has not failed.
type delay string

// after is a text with the reason behind it.
func (d delay) after(text string) string {
	if d == "" {
		return text
	}
	return text + ": " + string(d)
}

// delayed tells pods whose nodes are not launched yet what the last call failed with, at the first call and when that changes. The same call
// is repeated for minutes, and whoever waits wants to know before that is over. The pool is told once, for all its launches. On the claims it
// is written: should they be given up for their age, that is the cause.
func (m *Motor) delayed(ctx context.Context, rec *capacity.LaunchBatch, claims []*capacity.Claim, told *delay, why string) {
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
	m.each(ctx, len(claims), func(i int) { // before the next call: it may work, and what that writes must not be overwritten
		if err := m.claims.RecordRefused(ctx, claims[i].Name, reasonLaunchDelayed, why, true); err != nil && ctx.Err() == nil {
			m.log(ctx).V(3).Info("Could not record why a launch takes long", "nodeClaim", claims[i].Name, "err", err)
		}
	})
}

// delayOver says that a launch of a pool has worked, or is given up: the next that fails is news.
func (m *Motor) delayOver(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.delays, pool)
}
