package ledger

import (
	"slices"
	"time"
)

// A plan counts pods of earlier plans as if they were placed, also those whose nodes still boot or have startup taints. If a spread or an
// affinity allows a pod on its node only beside such pods, the filters refuse it there until these are bound. The pod keeps its reservation
// and waits for them: a new plan would come to the same result.
// So it is if an earlier pod of its own plan has lost its node, to a pod of a higher priority, say: the place in the plan order is kept for the
// slot that it gets next. If the pods after it were planned again instead, the nodes that were bought for all of them would be of no use.

// fallsBehind makes the pod of a slot, which the filters have just refused, wait for pods of older plans. It returns false if there are
// none, or if the filter that refused the pod doesn't look at other pods' labels. by returns that filter for a node; empty: it isn't known.
func (l *Ledger) fallsBehind(s *slot, by func(node string) (plugin, reason string)) bool {
	if plugin, _ := by(s.node.name); plugin != "" && !ofOthers(plugin) || s.owner != "" || !s.class.DependsOnOthers() || !s.older() {
		return false
	}
	if g := s.group; g != nil { // the whole group was ready, or the pod would not have been tried: the others can go on without this one
		g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == s })
		s.group = nil
	}
	s.behind = true
	l.unready(s)
	return true
}

// older reports whether a pod of the class that was planned before waits for its node or, if it has been displaced, isn't placed yet.
func (s *slot) older() bool {
	before := func(o *slot) bool { return o.place < s.place && !o.behind && o.owner == "" && (!o.ready || o.place < o.order) }
	return s.class.displaced.Before(s.place) || slices.ContainsFunc(s.class.slots, before)
}

// displace keeps the place of a slot that its pod can't use, unless that is because of other pods' labels, or it isn't known why.
func (s *slot) displace(by func(node string) (plugin, reason string), now time.Time) {
	if plugin, _ := by(s.node.name); plugin != "" && !ofOthers(plugin) && s.class.DependsOnOthers() {
		s.class.displaced.Keep(s.place, now)
	}
}

// ofOthers reports whether a filter looks at other pods' labels.
func ofOthers(plugin string) bool {
	return plugin == "PodTopologySpread" || plugin == "InterPodAffinity"
}

// catchUp opens slots that no longer wait for older ones.
func (l *Ledger) catchUp(c *class) {
	open := false
	for _, s := range c.slots {
		if s.behind && !s.older() {
			s.behind = false
			s.ready = s.waits() == nil
			open = open || s.ready
		}
	}
	if open {
		l.open(c)
	}
}
