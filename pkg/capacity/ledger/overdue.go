package ledger

import (
	"fmt"
	"time"
)

// overdue takes their room from pods that were let go and have come to nothing: none of their cycles has got as far as Reserve, and
// none has failed so that a PostFilter told of it. A plugin may fail each time, or whoever asked for the pod has changed it so that
// it can't be scheduled. Nobody else could use the room for ever, and its machine could not be ended. As long as it was kept, the pod
// gets no other: what is planned for it would be kept in vain again. Pods of other schedulers have othersDeadline.
func (l *Ledger) overdue(now time.Time) {
	for p := range l.podsIn(func(p *pod) bool {
		return p.state == Open && !p.class.ByOthers && (p.until.IsZero() || now.After(p.until))
	}) {
		if p.until.IsZero() {
			p.until = now.Add(l.patience.Gate)
		} else {
			why := fmt.Sprintf("its room was ready for %v, and the scheduler has not bound it there", l.patience.Gate)
			l.release(p)
			l.refuse(p, why, now)
			p.retry, p.broken = now.Add(l.patience.Gate), true
			l.out.Words = append(l.out.Words, Word{p.ref, why})
		}
	}
}
