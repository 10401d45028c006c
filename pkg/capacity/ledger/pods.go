package ledger

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Submit is called when the scheduler found no node for the pod. It answers the state the pod is in now: Queued when a
// plan is coming, Refused with the reason when it was planned for before and nothing has changed since.
func (l *Ledger) Submit(ref capacity.PodRef, c *capacity.Class, now time.Time) (State, string) {
	p, ok := l.pods[ref.UID]
	if !ok {
		p = l.add(ref, c)
		if l.adopt(p, p.owner, now) {
			return p.state, p.why
		}
		if k := p.class; k.lost > 1 && now.Before(k.rest) {
			// Its like were bound to nodes that died before their kubelets came, and made anew: for this one, too, that was a failure.
			p.state, p.since, p.retry = Refused, now, k.rest
			p.why = "the last nodes launched for such pods never came up; the next one is launched later: " + k.lostWhy
			return Refused, p.why
		}
		l.queue(p, now)
		p.stale = false
		return Queued, p.why
	}
	switch p.state {
	case Queued:
		p.held.Store(true) // its cycle ended without a try of preemption
		l.reclass(p, c)
		p.stale = false
	case Refused:
		p.heard = true
		if p.class.Key != c.Key || !p.retry.IsZero() && !now.Before(p.retry) {
			l.reclass(p, c)
			l.queue(p, now)
			p.stale = false
		}
	case Open:
		if s := p.slot; s != nil && s.node.waits(s.class.Class) != "" {
			l.unready(s) // its node came to have a taint, say, since the pod was let go: it waits for that, as it would have before
		}
		switch {
		case p.state != Open:
			return p.state, p.why
		case p.slot == nil:
			// The cycle that failed had begun before the plan was made. The next one will be pinned.
			return p.state, l.awakenLater(p, now)
		default:
			// Its cycle ran and failed: the room it was promised was not good enough.
			l.reject(p, "the planned node did not pass the scheduler's filters")
			l.fail(p, "the planned node did not pass the scheduler's filters", now)
		}
	}
	return p.state, p.why
}

func (l *Ledger) reclass(p *pod, c *capacity.Class) {
	if p.class.Key != c.Key {
		old := p.class
		p.class = l.class(c)
		old.pods--
		p.class.pods++
		l.forget(old)
	}
}

func (l *Ledger) queue(p *pod, now time.Time) {
	if p.told = ""; p.state == Refused {
		p.told = p.why
	}
	p.held.Store(false)
	p.stale = true
	p.state, p.since, p.why, p.retry = Queued, now, "capacity for the pod is being planned", time.Time{}
	l.out.Plan = true
}

// QueuedPods are the pods that wait for a plan, those first that have waited longest, and then in the order in which they came.
func (l *Ledger) QueuedPods() []Waiting {
	var out []Waiting
	for _, p := range l.pods {
		if p.state == Queued {
			out = append(out, Waiting{Ref: p.ref, Class: p.class.Class, Since: p.since, Stale: p.stale, arrival: p.arrival})
		}
	}
	slices.SortFunc(out, byWait)
	return out
}

// Waiting is a pod without a plan.
type Waiting struct {
	Ref   capacity.PodRef
	Class *capacity.Class
	Since time.Time
	Stale bool // the pod has not been looked at since it was made to wait again: by now it may be of another class (see Renew)

	arrival int
}

// Renew says of what class stale pods are by now.
func (l *Ledger) Renew(classes map[types.UID]*capacity.Class) {
	for uid, c := range classes {
		p, ok := l.pods[uid]
		if !ok || p.state != Queued || !p.stale {
			continue // it has spoken for itself meanwhile
		}
		p.stale = false
		l.reclass(p, c)
	}
}

// Dismiss ends the wait of queued pods that can't be planned for any more, and lets the scheduler look at them. Should a cycle
// of theirs fail once they can be, they come again.
func (l *Ledger) Dismiss(uids []types.UID) {
	for _, uid := range uids {
		if p, ok := l.pods[uid]; ok && p.state == Queued {
			l.Gone(uid)
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}

// Join queues a pod because another one of its group is planned for, even if it was refused before, and answers the state it
// is in now.
func (l *Ledger) Join(ref capacity.PodRef, c *capacity.Class, now time.Time) State {
	p, ok := l.pods[ref.UID]
	switch {
	case !ok:
		p = l.add(ref, c)
		l.queue(p, now)
		p.stale = false
	case p.state == Refused:
		l.reclass(p, c)
		l.queue(p, now)
		p.stale = false
	}
	return p.state
}

// lose counts a node that took pods of the class and never came up, once for all that go together.
func (c *class) lose(why string, now time.Time) {
	c.lostWhy = why
	if now.Before(c.rest) {
		return
	}
	c.lost++
	c.rest = now.Add(max(backoff(c.lost), firstBackoff))
}

// came ends that count: the node's kubelet is there.
func (l *Ledger) came(n *node) {
	for key := range n.took {
		if c, ok := l.classes[key]; ok {
			c.lost, c.rest = 0, time.Time{}
			l.forget(c)
		}
	}
	n.took = nil
}

// fail takes the pod's slot from it and plans again, later each time.
func (l *Ledger) fail(p *pod, why string, now time.Time) {
	l.release(p)
	p.class.recordFailure(now)
	l.again(p, why, now)
}

// again queues a pod whose promise was not kept, after its back-off.
func (l *Ledger) again(p *pod, why string, now time.Time) {
	p.failed++
	if d := backoff(max(p.failed, p.class.failed)); d > 0 {
		l.refuse(p, why, now)
		p.retry, p.broken = now.Add(d), true
		l.out.Words = append(l.out.Words, Word{p.ref, fmt.Sprintf("not planned for again before %v have passed: %s", d, why)})
		return
	}
	l.queue(p, now)
}

// Gone says that the pod was deleted, ended, or bound by somebody else.
func (l *Ledger) Gone(uid types.UID) {
	p, ok := l.pods[uid]
	if !ok {
		return
	}
	var assumed *slot
	if p.state == Assumed {
		assumed = p.slot
	}
	l.release(p)
	l.remove(p)
	if assumed != nil && l.nodes[assumed.node.key] == assumed.node {
		l.tidy(assumed.node) // it was kept for the pod
	}
}

// Bound says that the pod was bound: it and its class have had what they were promised.
func (l *Ledger) Bound(uid types.UID) {
	if p, ok := l.pods[uid]; ok {
		p.class.served()
		l.Gone(uid)
	}
}

// Seen reports that Pending has the pod now. The scheduler may have had it before: an earlier Activate for it was dropped then, so it is
// activated again.
func (l *Ledger) Seen(uid types.UID) {
	if p, ok := l.pods[uid]; ok && (p.state == Refused || p.state == Open && p.slot == nil) {
		l.out.Activate = append(l.out.Activate, p.ref)
	}
}

// served ends the counts of failures: a pod of the class was bound.
func (c *class) served() {
	c.failed, c.next = 0, time.Time{}
	c.refused, c.patient = 0, time.Time{}
}

// release takes the pod's entitlement away: its slot, or, while it has none, the slot of its class that is needed least.
func (l *Ledger) release(p *pod) {
	switch p.state {
	case Planned:
		i := slices.Index(p.class.waiting, p)
		p.class.waiting = slices.Delete(p.class.waiting, i, i+1)
		l.drop(p.class.spare(false))
	case Open:
		if p.slot == nil {
			p.class.open--
			l.drop(p.class.spare(true))
		} else {
			l.drop(p.slot)
		}
	}
	p.slot = nil // an assumed pod's slot is off the books already
	p.state = Unknown
}

// spare is the slot of the class to give up when an entitlement ends: the last in plan order, so that what is left is
// still a prefix of a verified plan; never a ready one while others will do, since ready ones are counted on.
func (c *class) spare(ready bool) *slot {
	var other *slot
	for _, s := range slices.Backward(c.slots) {
		if s.pod != nil || s.owner != "" {
			continue
		}
		if s.ready == ready {
			return s
		}
		if other == nil {
			other = s
		}
	}
	return other
}

// drop removes a slot and, with the last one, the reason for its node.
func (l *Ledger) drop(s *slot) {
	if s == nil {
		return
	}
	l.freed = true
	l.hold(s, "")
	if i := slices.Index(s.class.slots, s); i >= 0 {
		s.class.slots = slices.Delete(s.class.slots, i, i+1)
	}
	if s.pod != nil {
		s.pod.slot = nil
	}
	s.node.remove(s)
	if s.group != nil {
		i := slices.Index(s.group.slots, s)
		s.group.slots = slices.Delete(s.group.slots, i, i+1)
		l.openGroup(s.group)
	}
	l.tidy(s.node)
}
