package ledger

import (
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// othersDeadline is how long another scheduler may take to bind the pod once its node exists.
const othersDeadline = 10 * time.Minute

// overdue takes back the slots of pods that were opened and not bound in time: none of their cycles has reached Reserve, and none has
// failed in a way that PostFilter reported. A plugin may fail each time, or an edit of the pod may have made it unschedulable. Without a
// limit the capacity would be lost to others, and its instance could not be ended. The pod gets no other slot for as long again as this
// one was kept, since a new one would probably be unused, too. For pods of other schedulers othersDeadline applies.
func (l *Ledger) overdue(due []*pod, now time.Time) {
	for p := range l.among(due, func(p *pod) bool { return p.state == Open && (p.until.IsZero() || now.After(p.until)) }) {
		switch {
		case p.until.IsZero() && p.class.ByOthers:
			p.until = now.Add(othersDeadline)
		case p.until.IsZero():
			p.until = now.Add(l.patience.Gate)
		case p.class.ByOthers:
			l.fail(p, "its own scheduler has not bound it to the node that was launched for it", now)
		default:
			l.takeBack(p, fmt.Sprintf("its node was ready for %v, and the scheduler has not bound it there", l.patience.Gate), now)
		}
	}
}

// takeBack takes the slot from an open pod that was not bound in time. The pod is planned for again after Patience.Gate.
func (l *Ledger) takeBack(p *pod, why string, now time.Time) {
	l.release(p)
	l.refuse(p, why, now)
	p.retry, p.broken = now.Add(l.patience.Gate), true
	l.out.Words = append(l.out.Words, Word{p.ref, why})
}

// failures is the number of failures in a row, and the time of the first of them.
type failures struct {
	n     int
	since time.Time
}

// bindingTries is how many bindings of a pod to its slot have to fail before the slot is taken back.
const bindingTries = 5

// unbound takes back the slot of a pod whose binding has failed so often and for so long that it will most likely fail the next time, too:
// a Permit or PreBind plugin refuses the pod, or the API server its binding. overdue doesn't see such a pod, because each of its cycles
// gets to Reserve. A few failures say little even if they take long (one may take ten minutes, for a volume that isn't provisioned), so
// both their number and their time count. Pods of a gang keep their slots: they are refused at Permit until the gang is complete.
func (l *Ledger) unbound(p *pod, now time.Time) {
	if ofGang(p.class.Class) {
		return
	}
	if p.unbound.n++; p.unbound.n == 1 {
		p.unbound.since = now
	}
	if p.state == Open && p.unbound.n >= bindingTries && now.Sub(p.unbound.since) > l.patience.Gate {
		l.takeBack(p, fmt.Sprintf("binding it to its node has failed %d times within %v", p.unbound.n, now.Sub(p.unbound.since).Round(time.Second)), now)
	}
}

// ofGang reports whether pods of the class belong to a PodGroup.
func ofGang(c *capacity.Class) bool {
	return c.Pod != nil && (c.Pod.Spec.SchedulingGroup != nil || c.Pod.Labels[objects.LabelPodGroup] != "")
}
