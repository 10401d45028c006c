package ledger

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Room is whose room a pod was bound to.
type Room string

// Kinds of room.
const (
	// RoomFound: nothing was planned for the pod, it found room.
	RoomFound Room = "found"
	// RoomPlanned: a slot of its class.
	RoomPlanned Room = "planned"
	// RoomOther: something was planned for it, and it went elsewhere. That is a plan that was not kept.
	RoomOther Room = "other"
)

// Assume says that the scheduler has assumed the pod on the node: its room is accounted for there from now on. It answers
// why that must not be, when the node is being removed. daemon: the pod belongs to a DaemonSet.
func (l *Ledger) Assume(uid types.UID, name string, daemon bool) string {
	if n, ok := l.byName[name]; ok && n.closedTo(daemon) {
		return "the node is being removed"
	}
	room := RoomFound
	if p := l.pods[uid]; p != nil {
		if n, ok := l.byName[name]; ok && !daemon {
			if why := n.early(p.class.Class); why != "" {
				return why // the node has changed since Filter: a taint, or it isn't Ready any more
			}
		}
		switch {
		case p.slot != nil:
			room = RoomPlanned
			// The promise is kept: from here the scheduler's cache counts the pod, so the slot must not.
			s := p.slot
			if s.node.status.Managed && !s.node.status.Registered {
				if s.node.took == nil {
					s.node.took = map[capacity.ClassKey]*capacity.Class{}
				}
				s.node.took[s.class.Key] = s.class.Class
			}
			if i := indexOf(s.class.slots, s); i >= 0 {
				s.class.slots = append(s.class.slots[:i:i], s.class.slots[i+1:]...)
			}
			s.node.remove(s)
			if s.group != nil {
				if i := indexOf(s.group.slots, s); i >= 0 {
					s.group.slots = append(s.group.slots[:i:i], s.group.slots[i+1:]...)
				}
			}
		default:
			if p.state == Planned || p.state == Open {
				room = RoomOther
			}
			p.turned = p.state == Refused
			l.release(p)
		}
		p.state = Assumed
	}
	if n, ok := l.byName[name]; ok && !daemon && room != RoomPlanned {
		n.others = true
	}
	if l.assumed[name] == nil {
		l.assumed[name] = map[types.UID]Room{}
	}
	l.assumed[name][uid] = room
	return ""
}

// landed ends the time between Reserve and the end of the binding.
func (l *Ledger) landed(uid types.UID, name string) Room {
	room := l.assumed[name][uid]
	delete(l.assumed[name], uid)
	if len(l.assumed[name]) == 0 {
		delete(l.assumed, name)
	}
	return room
}

func indexOf(list []*slot, s *slot) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// Unassume says that the pod was not bound after all: it keeps its slot for the next try, if the node is still there.
func (l *Ledger) Unassume(uid types.UID, name string, now time.Time) {
	l.landed(uid, name)
	p := l.pods[uid]
	if p == nil || p.state != Assumed {
		return
	}
	if p.slot == nil && p.turned {
		p.state = Refused // as it was: found room doesn't make what it was refused for any better
		return
	}
	if p.slot == nil {
		l.remove(p)
		return
	}
	s := p.slot
	if l.nodes[s.node.key] != s.node || s.node.closed {
		p.slot = nil
		l.again(p, "its node has gone", now)
		return
	}
	p.state, p.until = Open, time.Time{} // its room was good, something else was in the way
	s.class.insert(s)
	s.node.add(s)
	if s.group != nil {
		s.group.slots = append(s.group.slots, s)
	}
	if s.node.waits(s.class.Class) != "" {
		l.unready(s)
	}
}

// Settled says that the pod's binding was written, and answers whose room it has.
func (l *Ledger) Settled(uid types.UID, name string) Room {
	room := l.landed(uid, name)
	if n, ok := l.byName[name]; ok {
		n.used = true
	}
	if p := l.pods[uid]; p != nil {
		p.class.served()
		if p.state == Planned || p.state == Open { // it was planned for while it was being bound: that room is nobody's
			l.release(p)
		} else if p.slot != nil && l.nodes[p.slot.node.key] == p.slot.node {
			l.tidy(p.slot.node)
		}
		p.slot = nil
		p.state = Unknown
		l.remove(p)
	}
	return room
}
