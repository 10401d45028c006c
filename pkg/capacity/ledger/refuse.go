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
// A pod that hears what it was told before, whatever the numbers in it are by now, that has had a cycle of its own since and that the
// scheduler has not been kept from looking at meanwhile, is left where it is: with thousands of such pods each change of a pool or an
// offer would cost as many cycles, before those of pods that fit. It answers the others, to whom this is news.
func (l *Ledger) Refuse(uids []types.UID, why string, retryable bool, now time.Time) (news []capacity.PodRef) {
	seen := map[*class]bool{}
	waits := l.siblings(now)
	for _, uid := range uids {
		p, ok := l.pods[uid]
		if !ok || p.state != Queued {
			continue
		}
		if retryable && !seen[p.class] {
			seen[p.class] = true
			p.class.refusal(now)
		}
		if p.heard && sameReason(p.told, why) && !p.held.Load() {
			l.turnAway(p, why, now)
		} else {
			l.refuse(p, why, now)
			news = append(news, p.ref)
		}
		p.behind = waits(p.class)
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
	p.behind, p.soon = false, false
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

// Unplanned says that the pod waits for a plan, or was refused one: no room is kept for it.
func (l *Ledger) Unplanned(uid types.UID) bool {
	p, ok := l.pods[uid]
	return ok && (p.state == Refused || p.state == Queued)
}

// soon is how long a pod waits for another promise before others may be evicted for it.
const soon = 10 * time.Second

// PlannedSoon says that the pod's promise was not kept and that it is planned for again in a moment, or that it waits for what the first
// nodes of a plan show: that is no reason yet to evict others, whose successors would need machines, too.
func (l *Ledger) PlannedSoon(uid types.UID, now time.Time) bool {
	p, ok := l.pods[uid]
	return ok && p.state == Refused && (p.soon || p.broken && p.retry.Sub(now) <= soon)
}

// Await says of pods that were just refused that they wait for what the first nodes of a plan show.
func (l *Ledger) Await(uids []types.UID) {
	for _, uid := range uids {
		if p, ok := l.pods[uid]; ok && p.state == Refused {
			p.soon = true
		}
	}
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

// Relieved plans again for pods that were refused for what may pass by itself, because there is room below a limit again. Their back-off
// goes on where it was if that doesn't help.
func (l *Ledger) Relieved(now time.Time) {
	for _, p := range l.pods {
		if p.state == Refused && !p.broken && !p.retry.IsZero() {
			l.queue(p, now)
		}
	}
}

// sameReason says that two reasons differ in their numbers at most: how much of a limit is left, how many nodes are on their way. They
// are other ones with each plan, and no news for a pod that waits.
func sameReason(a, b string) bool {
	for a != b {
		i := 0
		for i < len(a) && i < len(b) && a[i] == b[i] {
			i++
		}
		for i > 0 && inNumber(a[i-1]) { // a number may begin before the difference
			i--
		}
		m, n := number(a[i:]), number(b[i:])
		if m == 0 || n == 0 || i > 0 && inName(a[i-1]) {
			return false
		}
		a, b = a[i+m:], b[i+n:]
	}
	return true
}

// number is the length of the number that the text begins with, its unit included: 0, 12, 1.5Gi, 3m20s, 12:30.
func number(s string) int {
	if s == "" || s[0] < '0' || s[0] > '9' {
		return 0
	}
	n := 1
	for n < len(s) && inNumber(s[n]) {
		n++
	}
	return n
}

func inNumber(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '.' || c == ':'
}

// inName says that a number behind the character is part of a name: pool-1, c5.large, v1_2.
func inName(c byte) bool { return inNumber(c) || c == '-' || c == '_' || c == '/' }

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

// recordFailure counts a failure of the class, once for all pods that fail together.
func (c *class) recordFailure(now time.Time) {
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
