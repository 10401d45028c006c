package ledger

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Surge records that a Deployment is about to create pods of another ReplicaSet before the owner's pods on a node end. The slots that Reserve made
// for replacements of the owner's pods are for the Deployment's next pods from now on, whichever ReplicaSet creates them. Such a pod has other
// labels than the pod that it replaces, and so another class, but the same requests.
func (l *Ledger) Surge(leaving string, owner types.UID, deployment string) {
	for _, s := range l.heldFor(leaving) {
		if s.owner == owner && s.deployment == "" && deployment != "" {
			s.early, s.deployment = false, deployment
			l.surges[deployment]++
		}
	}
}

// reservedFor returns a slot that is reserved for the next pod of the class's Deployment, a ready one if possible, or nil.
func (l *Ledger) reservedFor(c *capacity.Class, deployment string) (out *slot) {
	if deployment == "" || l.surges[deployment] == 0 {
		return nil
	}
	for _, n := range l.nodes {
		for _, s := range n.slots {
			if s.deployment == deployment && maps.Equal(s.class.Requests, c.Requests) && !n.fenced && s.better(out) {
				out = s
			}
		}
	}
	return out
}

// better reports whether a pod had better get s than other: a ready slot before others, an older one before a newer one.
func (s *slot) better(other *slot) bool {
	return other == nil || s.ready && !other.ready || s.ready == other.ready && s.order < other.order
}

// reclassed replaces a slot by one of class c, with the same owner, on the same node and in the same group.
func (l *Ledger) reclassed(old *slot, c *class) *slot {
	if old.class == c {
		return old
	}
	l.seq++
	s := l.book(c, old.node, old.group, l.seq)
	l.hold(s, old.owner)
	s.set(s.waits() == nil && (old.group == nil || old.ready))
	freed := l.next.freed
	l.drop(old)
	l.next.freed = freed // the place is still taken
	l.forget(old.class)
	return s
}
