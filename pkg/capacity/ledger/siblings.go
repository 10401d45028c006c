package ledger

import (
	"slices"
	"time"
)

// siblings answers whether refused pods of a class have to leave domains to others of the class: these have reservations that count on each
// other's place (a spread over zones, say), on nodes that are on their way. If a refused pod took free room meanwhile, siblings would not
// pass the filters any more on the nodes that were launched for them. It waits no longer than a node may take to register.
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

// endWaitsForSiblings has the scheduler look at refused pods whose siblings have their nodes, or take too long.
func (l *Ledger) endWaitsForSiblings(now time.Time) {
	waits := l.siblings(now)
	for p := range l.podsIn(func(p *pod) bool { return p.behind && !waits(p.class) }) {
		if p.behind = false; p.state == Refused {
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}
