package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Adopt gives a pod that comes for the first time room that is held for its owner's next pods; false: there is none. Were it
// left to find room by itself, it might find some elsewhere, and the node that was bought for it would come for nobody.
func (l *Ledger) Adopt(ref capacity.PodRef, c *capacity.Class, now time.Time) bool {
	if l.pods[ref.UID] != nil || !l.Expects(c) {
		return false
	}
	p := l.add(ref, c)
	return l.adopt(p, p.owner, now)
}

// Adopted are the pods that are not bound yet and took room that was held for their owner's next pod, by that owner.
func (l *Ledger) Adopted() map[types.UID][]types.UID {
	out := map[types.UID][]types.UID{}
	for uid, p := range l.pods {
		if p.adoptedFrom != "" {
			out[p.adoptedFrom] = append(out[p.adoptedFrom], uid)
		}
	}
	return out
}

// Expects says whether room is held for a pod of the class's owner that has not come yet.
func (l *Ledger) Expects(c *capacity.Class) bool {
	k := l.classes[c.Key]
	return k != nil && k.heldFor(ownerOf(c)) != nil
}

// heldFor is a slot that is held for the owner's next pod, if possible one that it can be bound to now; nil: there is none.
func (c *class) heldFor(owner types.UID) (out *slot) {
	if owner == "" {
		return nil
	}
	for _, s := range c.slots {
		switch {
		case s.owner != owner:
		case s.ready:
			return s
		case out == nil:
			out = s
		}
	}
	return out
}

// adopt gives a new pod a slot that is held for its owner.
func (l *Ledger) adopt(p *pod, owner types.UID, now time.Time) bool {
	s := p.class.heldFor(owner)
	if s == nil {
		return false
	}
	l.hold(s, "")
	s.until, s.leaving, p.adoptedFrom = time.Time{}, "", owner
	p.state, p.since, p.why = Planned, now, waitReason(s)
	p.class.waiting = append(p.class.waiting, p)
	l.open(p.class)
	return true
}

func ownerOf(c *capacity.Class) types.UID {
	if c.Pod == nil {
		return ""
	}
	for i := range c.Pod.OwnerReferences {
		if ref := &c.Pod.OwnerReferences[i]; ref.Controller != nil && *ref.Controller {
			return ref.UID
		}
	}
	return ""
}

// Holds says whether room is held for pods of the owner.
func (l *Ledger) Holds(owner types.UID) bool { return l.held[owner] > 0 }

// hold keeps the slot for the owner's next pod; an empty owner: no more.
func (l *Ledger) hold(s *slot, owner types.UID) {
	if s.owner != "" {
		if l.held[s.owner]--; l.held[s.owner] == 0 {
			delete(l.held, s.owner)
		}
	}
	if s.owner = owner; owner != "" {
		l.held[owner]++
	}
}
