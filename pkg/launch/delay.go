package launch

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reasonLaunchDelayed: a launch call has failed that may work when it is repeated.
const reasonLaunchDelayed = "LaunchDelayed"

// delay is why a wave isn't launched yet, as its pods were told; empty: it has not failed.
type delay string

// after is a text with the reason behind it.
func (d delay) after(text string) string {
	if d == "" {
		return text
	}
	return text + ": " + string(d)
}

// delayed tells pods whose nodes are not launched yet what the last call failed with, at the first call and when that changes. The same call
// is repeated for minutes, and whoever waits wants to know before that is over. The pool is told once, for all its launches; claims that
// somebody has written are told themselves: no pod may wait for them.
func (m *Motor) delayed(rec *capacity.Wave, claims []*capacity.Claim, told *delay, why string) {
	why = oneLine(why)
	if why == "" || *told == delay(why) {
		return
	}
	*told = delay(why)
	for _, c := range claims {
		note := fmt.Sprintf("node %s is not launched yet, and is tried again: %s", c.Name, why)
		m.tellPods(c.Name, reasonLaunchDelayed, note)
		if rec.For == capacity.ForOrder {
			m.claims.TellClaim(c.Name, corev1.EventTypeWarning, reasonLaunchDelayed, note)
		}
	}
	m.mu.Lock()
	news := m.delays[rec.Pool] != why
	m.delays[rec.Pool] = why
	m.mu.Unlock()
	if news && rec.Pool != "" {
		m.claims.TellPool(rec.Pool, corev1.EventTypeWarning, reasonLaunchDelayed, "launches fail, and are tried again: "+why)
	}
}

// delayOver says that a launch of a pool has worked, or is given up: the next that fails is news.
func (m *Motor) delayOver(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.delays, pool)
}
