package ledger

import (
	"slices"
	"time"
)

// siblings returns a function that reports whether refused pods of a class have to leave topology domains to other pods of the class.
// These others have reservations that depend on each other (a spread over zones, say) on nodes that are being launched. If a refused pod took
// free capacity meanwhile, the others might no longer pass the filters on their nodes. The wait is no longer than a node may take to
// register.
func (l *Ledger) siblings(now time.Time) func(*class) bool {
	known := map[*class]bool{}
	return func(c *class) bool {
		wait, ok := known[c]
		if !ok {
			wait = slices.ContainsFunc(c.slots, func(s *slot) bool {
				return s.group != nil && s.owner == "" && !s.node.late && now.Sub(s.group.since) < l.patience.Late
			})
			known[c] = wait
		}
		return wait
	}
}

// endWaitsForSiblings activates refused pods that waited for planned pods of their class, once those have their nodes or have waited too long.
func (l *Ledger) endWaitsForSiblings(due []*pod, now time.Time) {
	waits := l.siblings(now)
	for p := range l.among(due, func(p *pod) bool { return p.behind && !waits(p.class) }) {
		if p.behind = false; p.state == Refused {
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}
