package ledger

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// Submit is called when the scheduler found no node for the pod. It returns the pod's new state: Queued when a plan will be made, Refused
// with the reason when a plan had no capacity for it and nothing has changed since.
func (l *Ledger) Submit(ref capacity.PodRef, c *capacity.Class, now time.Time) (State, string) {
	return l.SubmitRefused(ref, c, func(string) (string, string) { return "", "" }, now)
}

// SubmitRefused is Submit with a func that returns the filter that rejected the pod on a node, and its reason; empty: it isn't known.
func (l *Ledger) SubmitRefused(ref capacity.PodRef, c *capacity.Class, by func(node string) (plugin, reason string), now time.Time) (State, string) {
	p, ok := l.pods[ref.UID]
	if !ok {
		p = l.add(ref, c)
		if l.adopt(p, p.owner, now) {
			return p.state, p.why
		}
		if k := p.class; k.lost > 1 && now.Before(k.rest) {
			// Pods like it were bound to nodes that died before their kubelets registered, and were created again: that failure counts
			// for this pod, too.
			l.become(p, Refused)
			p.since, p.retry = now, k.rest
			p.why = "the last nodes launched for such pods never registered; the next one is launched later: " + k.lostWhy
			return Refused, p.why
		}
		l.queue(p, now)
		p.stale = false
		return Queued, p.why
	}
	switch p.state {
	case Queued:
		p.held.Store(true) // its cycle ended without an attempt at preemption
		l.reclass(p, c)
		p.stale = false
	case Refused:
		p.heard = true
		if p.class.Key != c.Key || !p.retry.IsZero() && !now.Before(p.retry) {
			l.reclass(p, c)
			l.queue(p, now)
			p.held.Store(true) // as above
			p.stale = false
		}
	case Open:
		if s := p.slot; s != nil && s.waits() != nil {
			l.unready(s) // the node has changed since the pod's gate opened (a new taint, say): the pod waits again
		}
		switch {
		case p.state != Open:
			return p.state, p.why
		case p.slot == nil:
			// The cycle that failed began before the plan was made. The next one will be pinned.
			return p.state, l.awakenLater(p, now)
		case l.fallsBehind(p.slot, by, now):
			if p.state == Open {
				return p.state, l.awakenLater(p, now) // another pod of its class was closed instead
			}
			return p.state, p.why
		default:
			// Its cycle was pinned and failed: the filters refused the planned node.
			l.reject(p, "the planned node did not pass the scheduler's filters")
			l.rejectedBy(p.ref.UID, by)
			l.fail(p, "the planned node did not pass the scheduler's filters", now)
		}
	}
	return p.state, p.why
}

func (l *Ledger) reclass(p *pod, c *capacity.Class) {
	if p.class.Key != c.Key {
		old := p.class
		p.unlist()
		p.class = l.class(c)
		p.list()
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
	l.become(p, Queued)
	p.since, p.why, p.retry = now, "capacity for the pod is being planned", time.Time{}
	l.out.Plan = true
}

// Queue is the pods that waited for a plan at some time, in no order.
type Queue []*pod

// Queue returns the pods that wait for a plan.
func (l *Ledger) Queue() Queue { return slices.Clone(l.queued) }

// QueuedPods returns those pods of a queue, or of a part of it, that still wait for a plan, in any order (see InOrder). A caller that must not hold its
// lock for long asks for a few thousand pods at a time.
func (l *Ledger) QueuedPods(q Queue) []Waiting {
	out := make([]Waiting, 0, len(q))
	for _, p := range q {
		if p.state == Queued && l.pods[p.ref.UID] == p {
			out = append(out, Waiting{Ref: p.ref, Class: p.class.Class, Since: p.since, Stale: p.stale, arrival: p.arrival})
		}
	}
	return out
}

// Queued returns how many pods wait for a plan.
func (l *Ledger) Queued() int { return len(l.queued) }

// Waiting is a pod that waits: for a plan (QueuedPods), or for the node that it is planned on (Releasable).
type Waiting struct {
	Ref   capacity.PodRef
	Class *capacity.Class
	Since time.Time
	Stale bool // queued again without a new Submit: by now it may be of another class (see Renew)

	arrival int
}

// Renew sets the present classes of stale pods.
func (l *Ledger) Renew(classes map[types.UID]*capacity.Class) {
	for uid, c := range classes {
		p, ok := l.pods[uid]
		if !ok || p.state != Queued || !p.stale {
			continue // it was submitted again meanwhile
		}
		p.stale = false
		l.reclass(p, c)
	}
}

// Outdate makes the classes of all queued pods stale (see Renew), because the labels that tell classes apart have changed.
func (l *Ledger) Outdate() {
	for _, p := range l.queued {
		p.stale = true
	}
}

// Dismiss removes queued pods that can't be planned for any more, and lets the scheduler try them. If a later cycle of theirs fails, they
// are submitted again.
func (l *Ledger) Dismiss(uids []types.UID) {
	for _, uid := range uids {
		if p, ok := l.pods[uid]; ok && p.state == Queued {
			l.Gone(uid)
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}

// Join queues a pod because another member of its gang is planned for, even if it was refused before, and returns its new state.
func (l *Ledger) Join(ref capacity.PodRef, c *capacity.Class, now time.Time) State {
	p, ok := l.pods[ref.UID]
	switch {
	case !ok:
		if p = l.add(ref, c); !l.adopt(p, p.owner, now) {
			l.queue(p, now)
			p.stale = false
		}
	case p.state == Refused:
		l.reclass(p, c)
		l.queue(p, now)
		p.stale = false
	}
	return p.state
}

// lose counts a node that took pods of the class and never registered; nodes that fail at about the same time count once.
func (c *class) lose(why string, now time.Time) {
	c.lostWhy = why
	if now.Before(c.rest) {
		return
	}
	c.lost++
	c.rest = now.Add(backoff.AtLeast(c.lost))
}

// came resets class.lost of the classes whose pods were bound to the node, because its kubelet has registered.
func (l *Ledger) came(n *node) {
	for key := range n.took {
		if c, ok := l.classes[key]; ok {
			c.lost, c.rest = 0, time.Time{}
			l.forget(c)
		}
	}
	n.took = nil
}

// fail takes the pod's slot away and plans again, after a delay that grows with each failure.
func (l *Ledger) fail(p *pod, why string, now time.Time) {
	l.release(p)
	p.class.recordFailure(now)
	l.again(p, why, now)
}

// again queues a pod that has lost its reservation, after its back-off.
func (l *Ledger) again(p *pod, why string, now time.Time) {
	p.failed++
	if d := backoff.After(max(p.failed, p.class.failed)); d > 0 {
		l.refuse(p, why, now)
		p.retry, p.broken = now.Add(d), true
		l.out.Words = append(l.out.Words, Word{p.ref, fmt.Sprintf("not planned for again before %v have passed: %s", d, why)})
		return
	}
	l.queue(p, now)
}

// Gone records that the pod was deleted, has ended, or was bound by another scheduler.
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
		l.tidy(assumed.node) // the node was kept for the pod
	}
}

// Seen records that package pending has the pod now. The scheduler may have had it earlier; an Activate from that time was dropped, because
// the pod was not found, so the pod is activated again.
func (l *Ledger) Seen(uid types.UID) {
	if p, ok := l.pods[uid]; ok && (p.state == Refused || p.state == Open && p.slot == nil) {
		l.out.Activate = append(l.out.Activate, p.ref)
	}
}

// served resets the failure counts, because a pod of the class was bound.
func (c *class) served() {
	c.failed, c.next = 0, time.Time{}
	c.refused, c.patient = 0, time.Time{}
}

// release ends the pod's entitlement and drops its slot or, if it has none yet, the slot of its class that is needed least.
func (l *Ledger) release(p *pod) {
	switch p.state {
	case Planned:
		i := slices.Index(p.class.waiting, p)
		p.class.waiting = slices.Delete(p.class.waiting, i, i+1)
		l.drop(p.class.spare(false))
	case Open:
		if p.slot == nil {
			p.unlist()
			l.drop(p.class.spare(true))
		} else {
			l.drop(p.slot)
		}
	}
	p.slot = nil // Assume has removed an assumed pod's slot already
	l.become(p, Unknown)
}

// spare returns the slot to drop when a pod of the class no longer needs one: the last in plan order that neither a pod nor an owner has,
// so that the slots which remain are still the beginning of a verified plan. It prefers ready slots if ready, otherwise those that aren't: for a
// Planned pod the caller says false, because the ready slots are needed for Open pods.
func (c *class) spare(ready bool) *slot {
	var other *slot
	for _, s := range slices.Backward(c.slots) {
		switch {
		case s.pod != nil || s.owner != "":
		case s.ready == ready:
			return s
		case other == nil:
			other = s
		}
	}
	return other
}

// drop removes a slot, and its node if nothing else depends on that.
func (l *Ledger) drop(s *slot) {
	if s == nil {
		return
	}
	l.next.freed = true
	l.hold(s, "")
	s.class.remove(s)
	if s.pod != nil {
		s.pod.slot = nil
	}
	s.node.remove(s)
	s.node.planned -= s.class.Requests[corev1.ResourceMemory]
	l.openGroup(s.leaveGroup())
	l.tidy(s.node)
}
