package ledger

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// awakenLater gives an open pod another scheduling cycle, because its last cycle ended without asking for the pod's slot. That happens once,
// to a cycle that began before the pod was planned for. If it happens again and again, a plugin that runs before Binder ends the cycles;
// activating the pod at once each time would make a loop that the queue's own back-off does not slow. awakenLater returns what the pod
// waits for.
func (l *Ledger) awakenLater(p *pod, now time.Time) (why string) {
	p.early++
	d := backoff.After(p.early - 1)
	if d == 0 {
		l.out.Activate = append(l.out.Activate, p.ref)
		return p.why
	}
	p.wake = now.Add(d)
	return "capacity is ready for it, but another plugin ends its scheduling cycles before Binder runs"
}

// awaken activates pods whose next cycle is due.
func (l *Ledger) awaken(due []*pod, now time.Time) {
	for p := range l.among(due, func(p *pod) bool { return !p.wake.IsZero() && !now.Before(p.wake) }) {
		p.wake = time.Time{}
		if p.state == Open && p.slot == nil {
			l.out.Activate = append(l.out.Activate, p.ref)
		}
	}
}
