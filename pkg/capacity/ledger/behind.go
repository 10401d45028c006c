package ledger

import "slices"

// A plan counts pods of earlier plans as if they were placed, also those whose nodes still boot or have startup taints. If a spread or an
// affinity allows a pod on its node only beside such pods, the filters refuse it there until these are bound. The pod keeps its reservation
// and waits for them: a new plan would come to the same result.

// fallsBehind makes the pod of a slot, which the filters have just refused, wait for pods of older plans. It returns false if there are
// none, or if the filter that refused the pod doesn't look at other pods' labels. by returns that filter for a node; empty: it isn't known.
func (l *Ledger) fallsBehind(s *slot, by func(node string) (plugin, reason string)) bool {
	if plugin, _ := by(s.node.name); plugin != "" && plugin != "PodTopologySpread" && plugin != "InterPodAffinity" {
		return false
	}
	if s.owner != "" || !s.class.DependsOnOthers() || !s.older() {
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

// older reports whether a pod of the class that was planned before waits for its node.
func (s *slot) older() bool {
	return slices.ContainsFunc(s.class.slots, func(o *slot) bool {
		return o.order < s.order && !o.ready && !o.behind && o.owner == ""
	})
}

// catchUp opens slots that no longer wait for older ones.
func (l *Ledger) catchUp(c *class) {
	open := false
	for _, s := range c.slots {
		if !s.behind || s.older() {
			continue
		}
		s.behind = false
		if s.waits() == nil {
			s.ready, open = true, true
		}
	}
	if open {
		l.open(c)
	}
}
