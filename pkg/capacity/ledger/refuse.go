package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

// lostMemory is how long after its back-off a class's count of lost rounds (nodes that took its pods and never registered) is kept. It is
// longer than a kubelet may take to register (15 min): otherwise the count would be forgotten before the next such node has failed.
const lostMemory = 20 * time.Minute

// Refuse ends the wait of queued pods that no plan has capacity for. Their gates open, so that ordinary scheduling and preemption may
// help them. retryable: the reason may pass by itself, and the pods are planned for again after a while; a class that is refused for such
// reasons repeatedly backs off. Nothing was launched, so this counts as no failure, and a change in the cluster ends the back-off.
//
// Refuse does not activate a pod that is refused for the same reason as before (numbers in the reason may differ), whose own scheduling
// cycle has failed since, and that no query (Gate, Pin) has kept from being scheduled since. With thousands of such pods each change of a pool or
// an offering would cost as many cycles, ahead of pods that fit. It returns the other pods, for which the reason is new.
func (l *Ledger) Refuse(uids []types.UID, why string, retryable bool, now time.Time) (news []capacity.PodRef) {
	waits := l.siblings(now)
	for _, uid := range uids {
		p, ok := l.pods[uid]
		if !ok || p.state != Queued {
			continue
		}
		if p.heard && reasons.Same(p.told, why) && !p.held.Load() {
			l.turnAway(p, why, now)
		} else {
			l.refuse(p, why, now)
			news = append(news, p.ref)
		}
		p.behind = waits(p.class)
		if retryable {
			p.class.refusal(l.changes, now)
			p.retry = now.Add(backoff.After(max(p.class.refused, 2)))
		}
	}
	return news
}

// refuse marks the pod as Refused, which opens its gate, and activates it, so that the scheduler tries it once more.
func (l *Ledger) refuse(p *pod, why string, now time.Time) {
	l.turnAway(p, why, now)
	p.heard = false
	l.out.Activate = append(l.out.Activate, p.ref)
}

func (l *Ledger) turnAway(p *pod, why string, now time.Time) {
	l.become(p, Refused)
	p.since, p.why, p.retry, p.broken = now, why, time.Time{}, false
	p.behind, p.soon = false, false
}

// Postpone ends the wait of a queued pod that something else may help: preemption, or a later attempt for its whole gang. If it is still
// refused at the given time, it is planned for again.
func (l *Ledger) Postpone(uid types.UID, why string, until, now time.Time) {
	if p, ok := l.pods[uid]; ok && p.state == Queued {
		l.refuse(p, why, now)
		p.retry = until
	}
}

// PostponeEarly is Postpone for a pod whose capacity is bought for its ProvisioningRequest, so that no pod need be evicted for it. The
// scheduler tries the pod again only if the reason is new.
func (l *Ledger) PostponeEarly(uid types.UID, why string, until, now time.Time) {
	p, ok := l.pods[uid]
	if !ok || p.state != Queued {
		return
	}
	if p.heard && reasons.Same(p.told, why) && !p.held.Load() {
		l.turnAway(p, why, now)
	} else {
		l.refuse(p, why, now)
	}
	p.retry, p.soon = until, true
}

// Refused reports whether no plan had capacity for the pod.
func (l *Ledger) Refused(uid types.UID) bool {
	p, ok := l.pods[uid]
	return ok && p.state == Refused
}

// Unplanned reports whether the pod waits for a plan or was refused one, so that no capacity is reserved for it.
func (l *Ledger) Unplanned(uid types.UID) bool {
	p, ok := l.pods[uid]
	return ok && (p.state == Refused || p.state == Queued)
}

// soon is the longest wait for another reservation during which no pods are evicted for the pod.
const soon = 10 * time.Second

// PlannedSoon reports whether the pod lost its reservation and is planned for again in a moment, or waits for the result of a plan's first nodes, or
// for capacity that is bought for its ProvisioningRequest. Then no pods should be evicted for it yet: their replacements would need instances, too.
func (l *Ledger) PlannedSoon(uid types.UID, now time.Time) bool {
	p, ok := l.pods[uid]
	return ok && p.state == Refused && (p.soon || p.broken && p.retry.Sub(now) <= soon)
}

// Await marks pods that were just refused because they wait for the result of a plan's first nodes, so that no pods are evicted for them.
func (l *Ledger) Await(uids []types.UID) {
	for _, uid := range uids {
		if p, ok := l.pods[uid]; ok && p.state == Refused {
			p.soon = true
		}
	}
}

// anew says why refused pods are planned for again. No cluster event tells them of it.
type anew struct {
	freed    bool // reserved capacity was released
	changed  bool // see Changed
	relieved bool // see Relieved
}

// planAnew makes a refused pod due to be planned for again if there is a reason in this round of TickPods. Pods in back-off keep waiting. Those that
// were refused less than a second ago wait, too: in the queue, a pod's cycle would report that it is planned for, not the refusal.
func (l *Ledger) planAnew(p *pod) {
	why, soon := l.round, p.since.Add(backoff.First)
	if never := p.retry.IsZero(); p.state == Refused &&
		(never && (why.freed || why.changed) || !never && !p.broken && p.retry.After(soon) && (why.changed || why.relieved)) {
		p.retry = soon
	}
	if why.freed {
		p.heard = false // if it is refused for the same reason again, the scheduler has to look at it all the same
	}
}

// Changed records a change of offerings or pools. Pods that were refused for lack of them are planned for again in the next round of TickPods
// however often they were refused, but not within a second of their refusal. Pods that nodes were launched for in vain keep waiting.
func (l *Ledger) Changed() {
	l.next.changed = true
	l.changes++
}

// Relieved records that usage has fallen below a limit. Pods that were refused for a reason that may pass by itself are planned for again in the
// next round of TickPods. If that doesn't help, their back-off continues where it was.
func (l *Ledger) Relieved() { l.next.relieved = true }

// recordFailure counts a failure of the class, once for all pods that fail together.
func (c *class) recordFailure(now time.Time) {
	if now.Before(c.next) {
		return
	}
	c.failed++
	c.next = now.Add(backoff.AtLeast(c.failed))
}

// refusal counts a plan without capacity for the class, once for all of its pods. changes is how often offerings or pools have changed: after a
// change the count begins anew.
func (c *class) refusal(changes int, now time.Time) {
	if c.changes != changes {
		c.refused, c.patient, c.changes = 0, time.Time{}, changes
	}
	if now.Before(c.patient) {
		return
	}
	c.refused++
	c.patient = now.Add(backoff.AtLeast(c.refused))
}
