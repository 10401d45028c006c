package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Adopt gives a new pod a reservation that was made for its owner's next pods, and returns false if there is none. A pod that is left to
// find capacity by itself may find it on another node, and the node that was bought for it would stay unused.
func (l *Ledger) Adopt(ref capacity.PodRef, c *capacity.Class, now time.Time) bool {
	if l.pods[ref.UID] != nil || !l.Expects(c) {
		return false
	}
	p := l.add(ref, c)
	return l.adopt(p, p.owner, now)
}

// Adopted returns, by owner, the unbound pods that took a reservation made for that owner's next pods.
func (l *Ledger) Adopted() map[types.UID][]types.UID {
	out := map[types.UID][]types.UID{}
	for uid, p := range l.pods {
		if p.adoptedFrom != "" {
			out[p.adoptedFrom] = append(out[p.adoptedFrom], uid)
		}
	}
	return out
}

// Expects reports whether capacity is reserved for a pod that the class's owner has yet to create, or booked for the request that it names.
func (l *Ledger) Expects(c *capacity.Class) bool {
	owner, deployment := ownersOf(c)
	return l.heldForNext(c, owner) != nil || l.heldInMove(c, owner) != nil || l.reservedFor(c, deployment) != nil || l.bookedFor(c) != nil
}

// heldInMove returns a slot that was reserved for the owner's next pod because one of its pods has to leave its node, or nil. The slot may
// be of any class: it was reserved for a pod like the old one, which may have got labels at run time or have been resized. The pod that the
// controller creates from its template hasn't, so it is of another class then.
func (l *Ledger) heldInMove(c *capacity.Class, owner types.UID) (out *slot) {
	for _, s := range l.held[owner] {
		if n := s.node; !s.early && s.leaving != "" && !n.fenced && c.Requests.Fits(s.class.Requests) && n.suits(c) && s.better(out) {
			out = s
		}
	}
	return out
}

// heldForNext returns a slot of the class that is reserved for the owner's next pod, one on an initialized node or else a ready one if possible, or nil.
func (l *Ledger) heldForNext(c *capacity.Class, owner types.UID) (out *slot) {
	of := l.classes[c.Key]
	for _, s := range l.held[owner] {
		switch {
		case s.class != of || s.early:
		case s.ready && s.node.status.Initialized: // the node that is being drained has waited for such a slot
			return s
		case out == nil || s.ready && !out.ready:
			out = s
		}
	}
	return out
}

// adopt gives a new pod a slot that is reserved for its owner or booked for the request that it names, and returns false if there is none.
func (l *Ledger) adopt(p *pod, owner types.UID, now time.Time) bool {
	s := l.heldForNext(p.class.Class, owner)
	if s == nil {
		other := l.bookedFor(p.class.Class)
		if other == nil {
			other = l.heldInMove(p.class.Class, owner)
		}
		if other == nil {
			other = l.reservedFor(p.class.Class, p.deployment)
		}
		if other == nil {
			return false
		}
		s = l.reclassed(other, p.class)
	}
	l.hold(s, "")
	s.until, s.leaving, p.adoptedFrom = time.Time{}, "", owner
	l.become(p, Planned)
	p.since, p.why = now, waitReason(s)
	p.class.waiting = append(p.class.waiting, p)
	l.open(p.class)
	return true
}

// ownersOf returns the controller of the class's pods, and the Deployment that has it.
func ownersOf(c *capacity.Class) (owner types.UID, deployment string) {
	if c.Pod == nil {
		return "", ""
	}
	return objects.Controller(c.Pod), objects.DeploymentOf(c.Pod)
}

// Holds reports whether capacity is reserved for pods that the owner, or another ReplicaSet of the Deployment, has yet to create.
func (l *Ledger) Holds(owner types.UID, deployment string) bool {
	return len(l.held[owner]) > 0 || l.surges[deployment] > 0
}

// hold reserves the slot for the owner's next pod. An empty owner ends the reservation for an owner.
func (l *Ledger) hold(s *slot, owner types.UID) {
	if s.owner != "" {
		if l.held[s.owner] = without(l.held[s.owner], s); len(l.held[s.owner]) == 0 {
			delete(l.held, s.owner)
		}
	}
	if s.deployment != "" {
		if l.surges[s.deployment]--; l.surges[s.deployment] == 0 {
			delete(l.surges, s.deployment)
		}
		s.deployment = ""
	}
	if s.owner = owner; owner != "" {
		l.held[owner] = inserted(l.held[owner], s)
	}
	s.set(s.ready)
}
