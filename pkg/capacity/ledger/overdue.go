package ledger

import (
	"fmt"
	"time"
)

// overdue takes back the slots of pods that were opened and not bound in time: none of their cycles has reached Reserve, and none has
// failed in a way that PostFilter reported. A plugin may fail each time, or an edit of the pod may have made it unschedulable. Without a
// limit the capacity would be lost to others, and its instance could not be ended. The pod gets no other slot for as long again as this
// one was kept, since a new one would probably be unused, too. For pods of other schedulers othersDeadline applies.
func (l *Ledger) overdue(now time.Time) {
	for p := range l.podsIn(func(p *pod) bool {
		return p.state == Open && !p.class.ByOthers && (p.until.IsZero() || now.After(p.until))
	}) {
		if p.until.IsZero() {
			p.until = now.Add(l.patience.Gate)
		} else {
			why := fmt.Sprintf("its node was ready for %v, and the scheduler has not bound it there", l.patience.Gate)
			l.release(p)
			l.refuse(p, why, now)
			p.retry, p.broken = now.Add(l.patience.Gate), true
			l.out.Words = append(l.out.Words, Word{p.ref, why})
		}
	}
}
