package ledger

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A plan counts pods of earlier plans as if they were placed, also those whose nodes still boot or have startup taints. If a pod satisfies a
// spread or an affinity only once such pods are there, the filters refuse it on its node until those pods are bound. The pod keeps its reservation
// and waits for them ("behind"): a new plan would come to the same result.
// The pods that it was planned with may also have lost their nodes since, to pods of a higher priority, say, and have newer plans or none yet.
// Then a spread refuses the pod although its node is as planned. If each such pod gave up its reservation, these nodes would be launched in vain.
// So other pods of the class are tried first, and the refused pod is tried again when one of them has been placed.

const (
	tryAgain    = 10 * time.Second // a pod that a spread has refused is tried again after this time even if no other was placed; it grows
	mostWait    = 5 * time.Minute  // how long after its first refusal a pod waits for pods of newer plans
	triesPerPod = 16               // waiting pods of a class to try again per tick and placed pod: else n pods would need up to n*n cycles
)

// fallsBehind makes the pod of a slot, which the filters have just refused, wait for other pods. It returns false if there are none to wait
// for, or if the filter that refused the pod doesn't look at other pods' labels. by returns that filter for a node; empty: it isn't known.
func (l *Ledger) fallsBehind(s *slot, by func(node string) (plugin, reason string), now time.Time) bool {
	plugin, reason := by(s.node.name)
	spread := plugin == "PodTopologySpread" && !strings.HasSuffix(reason, "(missing required label)")
	if plugin != "" && !spread && plugin != "InterPodAffinity" || s.owner != "" || !s.class.DependsOnOthers() {
		return false
	}
	older := s.older()
	if older || s.refused.IsZero() {
		s.refused = now
	}
	planned := len(s.class.queued) > 0 || now.Before(s.class.next) // other pods of the class will get a plan, soon or after their back-off
	if !older && (!spread || now.Sub(s.refused) > mostWait || !s.class.tries(s) && !planned) {
		return false
	}
	s.leaveGroup() // the whole group was ready, or the pod would not have been tried: the others can go on without this one
	s.behind, s.placed, s.again = true, s.class.placed, time.Time{}
	if spread {
		s.again = now.Add(max(tryAgain, now.Sub(s.refused)))
	}
	l.unready(s)
	return true
}

// older reports whether the class has a slot that was planned before s and whose pod still waits for its node.
func (s *slot) older() bool {
	return slices.ContainsFunc(s.class.slots, func(o *slot) bool { return o.order < s.order && !o.ready && !o.behind && o.owner == "" })
}

// tries reports whether the class has a slot other than s whose pod waits for its node or is about to be tried on it.
func (c *class) tries(s *slot) bool {
	return slices.ContainsFunc(c.slots, func(o *slot) bool {
		return o != s && (!o.behind || o.placed != c.placed) && o.owner == "" && !o.node.late
	})
}

// catchUp makes slots ready that need not wait behind others any more; of many, some of each zone, since a spread may refuse a whole zone.
func (l *Ledger) catchUp(c *class, now time.Time) {
	most := triesPerPod * max(1, c.placed-c.caughtUp)
	c.caughtUp = c.placed
	var due []*slot
	older := false
	for _, s := range c.slots {
		switch {
		case !s.behind:
			older = older || !s.ready && s.owner == ""
		case !older && (s.again.IsZero() || s.placed != c.placed), !s.again.IsZero() && !now.Before(s.again):
			due = append(due, s)
		}
	}
	if len(due) > most { // the pods that were refused first are tried first
		slices.SortStableFunc(due, func(a, b *slot) int { return a.placed - b.placed })
		rank, inZone := map[*slot]int{}, map[string]int{}
		for _, s := range due {
			inZone[s.node.status.Labels[corev1.LabelTopologyZone]]++
			rank[s] = inZone[s.node.status.Labels[corev1.LabelTopologyZone]]
		}
		slices.SortStableFunc(due, func(a, b *slot) int { return rank[a] - rank[b] })
		due = due[:most]
	}
	for _, s := range due {
		s.behind = false
		s.set(s.waits() == nil)
	}
	if len(due) > 0 {
		l.open(c)
	}
}
