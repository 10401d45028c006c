package ledger

import (
	"slices"
	"time"
)

// A plan counts pods of earlier plans as if they were placed, also those whose nodes still boot or have startup taints. If a spread or an
// affinity allows a pod on its node only beside such pods, the filters refuse it there until these are bound. The pod keeps its reservation
// and waits for them: a new plan would come to the same result.
// The pods that it was planned with may have lost their nodes since, to pods of a higher priority, say, and have newer plans. A spread then
// refuses pods on nodes that are all right, until these are placed. If each of them gave its reservation up, the nodes that were bought for
// all of them would be of no use: the others of the class are tried first, and it is tried again whenever one of them has been placed.

// fallsBehind makes the pod of a slot, which the filters have just refused, wait for other pods. It returns false if there are none to wait
// for, or if the filter that refused the pod doesn't look at other pods' labels. by returns that filter for a node; empty: it isn't known.
func (l *Ledger) fallsBehind(s *slot, by func(node string) (plugin, reason string), now time.Time) bool {
	plugin, _ := by(s.node.name)
	if plugin != "" && plugin != "PodTopologySpread" && plugin != "InterPodAffinity" || s.owner != "" || !s.class.DependsOnOthers() {
		return false
	}
	if s.vain++; s.placed != s.class.placed {
		s.vain = 1
	}
	if !s.older() && (plugin != "PodTopologySpread" || s.vain > mostVain || !s.class.tries(s) && s.class.queued == 0) {
		return false
	}
	if g := s.group; g != nil { // the whole group was ready, or the pod would not have been tried: the others can go on without this one
		g.slots = slices.DeleteFunc(g.slots, func(o *slot) bool { return o == s })
		s.group = nil
	}
	s.behind, s.placed, s.again = true, s.class.placed, time.Time{}
	if plugin == "PodTopologySpread" {
		s.again = now.Add(planSoon)
	}
	l.unready(s)
	return true
}

// mostVain is how often a pod waits for others although none has been placed meanwhile.
const mostVain = 3

// older reports whether a pod of the class that was planned before waits for its node.
func (s *slot) older() bool {
	return slices.ContainsFunc(s.class.slots, func(o *slot) bool {
		return o.order < s.order && !o.ready && !o.behind && o.owner == ""
	})
}

// planSoon is how long a pod waits for others that nothing has been planned for yet.
const planSoon = 10 * time.Second

// tries reports whether a pod of the class waits for its node or is about to be tried on one, besides that of a slot.
func (c *class) tries(s *slot) bool {
	return slices.ContainsFunc(c.slots, func(o *slot) bool { return o != s && !o.behind && o.owner == "" })
}

// catchUp opens slots that no longer wait for others.
func (l *Ledger) catchUp(c *class, now time.Time) {
	open, tries := false, c.tries(nil)
	for _, s := range c.slots {
		others := !s.again.IsZero() && (tries || c.queued > 0 && now.Before(s.again))
		if !s.behind || others && s.placed == c.placed || s.older() {
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
