package ledger

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Bound records that the pod was bound to the Node, which ends its class's failure counts.
func (l *Ledger) Bound(uid types.UID, name string, now time.Time) {
	p, ok := l.pods[uid]
	if !ok {
		return
	}
	p.class.served()
	if n := l.byName[name]; n != nil && p.class.ByOthers && p.slot == nil {
		l.use(p, n, now)
	}
	l.Gone(uid)
}

// use drops the slot that a pod of another scheduler has used on the node. That scheduler doesn't know the plan: it binds any pod of a class to
// any node that has capacity for it. Thus the pod may have had a later slot than this one, or none. Then another pod of the class gets what the
// pod had: a wait for the later slot, or a new plan.
func (l *Ledger) use(p *pod, n *node, now time.Time) {
	c := p.class
	i := slices.IndexFunc(n.slots, func(s *slot) bool { return s.class == c && s.pod == nil && s.owner == "" })
	if i < 0 {
		return
	}
	s, had := n.slots[i], p.state
	switch had {
	case Planned:
		w := slices.Index(c.waiting, p)
		c.waiting = slices.Delete(c.waiting, w, w+1)
	case Open, Queued, Refused:
	default:
		return
	}
	l.become(p, Unknown)
	l.unready(s)
	l.drop(s)
	if k := len(c.waiting); k > 0 && (had == Queued || had == Refused) {
		o := c.waiting[k-1]
		c.waiting = c.waiting[:k-1]
		l.requeue(o, "", true, now)
	}
	l.open(c)
}
