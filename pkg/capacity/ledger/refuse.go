package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Back-off of a class or pod whose nodes did not get it bound: the first time costs nothing, since a race with another
// pod is the likeliest cause; then it doubles.
const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
	// lostMemory is longer than a kubelet may take (15 min), or nodes that never come would never count as a row.
	lostMemory = 20 * time.Minute
)

// Refuse ends the wait of queued pods without a plan. Their gates open, so that ordinary scheduling and preemption may
// help them. retryable: the reason may pass by itself, they are planned for again after a while; a class that is refused for
// such a reason again and again backs off. That costs nothing but time, so it is no failure, and a change ends it.
//
// A pod that hears what it was told before, that has had a cycle of its own since and that the scheduler has not been kept from
// looking at meanwhile, is left where it is: with thousands of such pods each change of a pool or an offer would cost as many
// cycles, before those of pods that fit. It answers the others, to whom this is news.
func (l *Ledger) Refuse(uids []types.UID, why string, retryable bool, now time.Time) (news []capacity.PodRef) {
	seen := map[*class]bool{}
	for _, uid := range uids {
		p, ok := l.pods[uid]
		if !ok || p.state != Queued {
			continue
		}
		if retryable && !seen[p.class] {
			seen[p.class] = true
			p.class.refusal(now)
		}
		if p.heard && p.told == why && !p.held.Load() {
			l.turnAway(p, why, now)
		} else {
			l.refuse(p, why, now)
			news = append(news, p.ref)
		}
		if retryable {
			p.retry = now.Add(backoff(max(p.class.refused, 2)))
		}
	}
	return news
}

// refuse turns the pod away and has the scheduler look at it.
func (l *Ledger) refuse(p *pod, why string, now time.Time) {
	l.turnAway(p, why, now)
	p.heard = false
	l.out.Activate = append(l.out.Activate, p.ref)
}

func (l *Ledger) turnAway(p *pod, why string, now time.Time) {
	p.state, p.since, p.why, p.retry, p.broken = Refused, now, why, time.Time{}, false
}

// Postpone ends the wait of a queued pod that somebody else is about to help. It is planned for when that hasn't helped by then.
func (l *Ledger) Postpone(uid types.UID, why string, until, now time.Time) {
	if p, ok := l.pods[uid]; ok && p.state == Queued {
		l.refuse(p, why, now)
		p.retry = until
	}
}

// Refused says that there was no room for the pod in any plan.
func (l *Ledger) Refused(uid types.UID) bool {
	p, ok := l.pods[uid]
	return ok && p.state == Refused
}

// soon is how long a pod waits for another promise before others may be evicted for it.
const soon = 10 * time.Second

// PlannedSoon says that the pod's promise was not kept and that it is planned for again in a moment: it is no reason yet to
// evict others, whose successors would need machines, too.
func (l *Ledger) PlannedSoon(uid types.UID, now time.Time) bool {
	p, ok := l.pods[uid]
	return ok && p.state == Refused && p.broken && p.retry.Sub(now) <= soon
}

// Reopen plans for refused pods again, because room was given back. Those in back-off wait on.
func (l *Ledger) Reopen(now time.Time) {
	for _, p := range l.pods {
		if p.state == Refused && (p.retry.IsZero() || !now.Before(p.retry)) {
			l.queue(p, now)
		}
	}
}

// Changed is Reopen because offers or pools changed: what was refused for lack of them is planned for again however often it
// was refused, though not within the second. Whom machines were launched for in vain waits on.
func (l *Ledger) Changed(now time.Time) {
	for _, c := range l.classes {
		c.refused, c.patient = 0, time.Time{}
	}
	for _, p := range l.pods {
		if p.state == Refused && !p.broken {
			if soon := p.since.Add(firstBackoff); p.retry.After(soon) {
				p.retry = soon
			}
		}
	}
	l.Reopen(now)
}

// backoff before try n+1 after n failures.
func backoff(n int) time.Duration {
	if n < 2 {
		return 0
	}
	if n > 20 {
		return maxBackoff
	}
	return min(firstBackoff<<(n-2), maxBackoff)
}

// strike counts a failure of the class, once for all pods that fail together.
func (c *class) strike(now time.Time) {
	if now.Before(c.next) {
		return
	}
	c.failed++
	c.next = now.Add(max(backoff(c.failed), firstBackoff))
}

// refusal counts a plan without room for the class, once for all of its pods.
func (c *class) refusal(now time.Time) {
	if now.Before(c.patient) {
		return
	}
	c.refused++
	c.patient = now.Add(max(backoff(c.refused), firstBackoff))
}
