package ledger

import "time"

// awakenLater gives an open pod another cycle, because the last one ended without asking for its slot. Once that is what happens to
// a cycle that had begun before the pod was planned for. Again and again it means that another plugin ends them first, one that comes
// before Binder, and each cycle that is asked for at once is the next turn of a loop that the queue's own back-off doesn't slow.
// It answers what the pod waits for.
func (l *Ledger) awakenLater(p *pod, now time.Time) (why string) {
	p.early++
	d := backoff(p.early - 1)
	if d == 0 {
		l.out.Activate = append(l.out.Activate, p.ref)
		return p.why
	}
	p.wake = now.Add(d)
	return "its room is ready, but its scheduling cycles end before they ask for it: another plugin ends them"
}

// awaken gives pods their next cycle that are due for one.
func (l *Ledger) awaken(now time.Time) {
	for p := range l.podsIn(func(p *pod) bool { return !p.wake.IsZero() && !now.Before(p.wake) }) {
		p.wake = time.Time{}
		if p.state == Open && p.slot == nil {
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}
