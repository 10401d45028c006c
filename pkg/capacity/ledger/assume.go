package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/reasons"
)

// Room tells whether a pod was bound to the capacity that was planned for it.
type Room string

// The values of Room.
const (
	// RoomFound: nothing was planned for the pod; it was bound to free capacity.
	RoomFound Room = "found"
	// RoomPlanned: the pod was bound with a reservation of its class.
	RoomPlanned Room = "planned"
	// RoomOther: capacity was planned for the pod, but it was bound elsewhere. The plan was not kept.
	RoomOther Room = "other"
)

// binding is a pod that is being bound.
type binding struct {
	room   Room
	daemon bool // it belongs to a DaemonSet
}

// Assume records that the scheduler has assumed the pod on the node; from now on the scheduler's cache accounts for it there. Assume
// returns an error if the node is being removed or must not take the pod yet. daemon: the pod belongs to a DaemonSet.
func (l *Ledger) Assume(uid types.UID, name string, daemon bool) error {
	if n, ok := l.byName[name]; ok && n.closedTo(daemon) {
		return reasons.ErrRemoved
	}
	room := RoomFound
	if p := l.pods[uid]; p != nil {
		if n, ok := l.byName[name]; ok && !daemon {
			if err := n.early(p.class.Class, false); err != nil {
				return err // the node has changed since Filter: it has a new taint or is no longer Ready
			}
		}
		switch {
		case p.slot != nil:
			room = RoomPlanned
			// The reservation is used: from here the scheduler's cache counts the pod, so the slot must not count it, too.
			s := p.slot
			if s.node.status.Managed && !s.node.status.Registered {
				if s.node.took == nil {
					s.node.took = map[capacity.ClassKey]*capacity.Class{}
				}
				s.node.took[s.class.Key] = s.class.Class
			}
			s.class.remove(s)
			s.node.remove(s)
			if g := s.group; g != nil {
				g.slots = without(g.slots, s) // it comes back if the binding fails
			}
		default:
			if p.state == Planned || p.state == Open {
				room = RoomOther
			}
			p.turned = p.state == Refused
			l.release(p)
		}
		l.become(p, Assumed)
		p.class.placed++
	}
	if n, ok := l.byName[name]; ok && !daemon && room != RoomPlanned {
		n.others = true
	}
	if n, ok := l.byName[name]; ok && room != RoomPlanned && len(n.chunks) > 0 {
		l.out.Buffers = true
	}
	if l.assumed[name] == nil {
		l.assumed[name] = map[types.UID]binding{}
	}
	l.assumed[name][uid] = binding{room, daemon}
	return nil
}

// landed ends the interval between Reserve and the end of the binding, and returns what Assume recorded.
func (l *Ledger) landed(uid types.UID, name string) Room {
	room := l.assumed[name][uid].room
	delete(l.assumed[name], uid)
	if len(l.assumed[name]) == 0 {
		delete(l.assumed, name)
	}
	return room
}

// Unassume records that the pod was not bound after all. If the node still exists, the pod keeps its slot for the next attempt, unless its
// binding has failed too often (see unbound).
func (l *Ledger) Unassume(uid types.UID, name string, now time.Time) {
	l.landed(uid, name)
	p := l.pods[uid]
	if p == nil || p.state != Assumed {
		return
	}
	if p.slot == nil && p.turned {
		l.become(p, Refused) // as before: having found free capacity does not remove the reason it was refused for
		return
	}
	if p.slot == nil {
		l.remove(p)
		return
	}
	s := p.slot
	if l.nodes[s.node.key] != s.node || s.node.closed {
		p.slot = nil
		l.again(p, "its node is gone", now)
		return
	}
	l.become(p, Open)
	p.until = time.Time{} // its reservation was good, the binding failed for another reason
	s.class.insert(s)
	s.node.add(s)
	if s.group != nil {
		s.group.slots = inserted(s.group.slots, s)
	}
	if s.waits() != nil {
		l.unready(s)
	}
	l.unbound(p, now)
}

// Settled records that the pod's binding was written, and returns which capacity the pod was bound to.
func (l *Ledger) Settled(uid types.UID, name string) Room {
	room := l.landed(uid, name)
	if n, ok := l.byName[name]; ok {
		n.used = true
	}
	if p := l.pods[uid]; p != nil {
		p.class.served()
		if p.state == Planned || p.state == Open { // it was planned for while it was being bound: no pod needs that reservation
			l.release(p)
		} else if p.slot != nil && l.nodes[p.slot.node.key] == p.slot.node {
			p.slot.node.served = true
			l.tidy(p.slot.node)
		}
		p.slot = nil
		l.remove(p)
	}
	return room
}
