package ledger

import "slices"

// A plan counts pods of earlier plans as if they were placed, also those whose nodes still boot or have startup taints. If a spread or an
// affinity allows a pod on its node only beside such pods, the filters refuse it there until these are bound. The pod keeps its reservation
// and waits for them: a new plan would come to the same result.
// The pods that it counted on may have lost their nodes since, to pods of a higher priority, say, and have newer plans. Then the pod's slot goes
// behind those of all others: if it was given up, they would be refused in turn, and nodes that were bought for all of them would be of no use.

// fallsBehind makes the pod of a slot, which the filters have just refused, wait for pods of other plans. It returns false if there are
// none, or if the filter that refused the pod doesn't look at other pods' labels. by returns that filter for a node; empty: it isn't known.
func (l *Ledger) fallsBehind(s *slot, by func(node string) (plugin, reason string)) bool {
	if plugin, _ := by(s.node.name); plugin != "" && plugin != "PodTopologySpread" && plugin != "InterPodAffinity" {
		return false
	}
	if s.owner != "" || !s.class.DependsOnOthers() || !s.older() && !l.last(s) {
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
	return slices.ContainsFunc(s.class.slots, func(o *slot) bool { return o.order < s.order && o.boots() })
}

const mostMoved = 3 // times that a slot goes behind all others

func (s *slot) boots() bool { return !s.ready && !s.behind && s.owner == "" }

// last puts a slot behind all others of its class. It returns false if no pod waits for one of these or may try one.
func (l *Ledger) last(s *slot) bool {
	c := s.class
	if s.moved >= mostMoved || !slices.ContainsFunc(c.slots, func(o *slot) bool { return o != s && (o.boots() || o.ready && o.pod == nil && o.owner == "") }) {
		return false
	}
	c.slots = slices.DeleteFunc(c.slots, func(o *slot) bool { return o == s })
	l.seq++
	s.order, s.moved = l.seq, s.moved+1
	c.insert(s)
	return true
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
