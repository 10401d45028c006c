package burst

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Arrivals know whether pods are about to come (pending.Arrivals).
type Arrivals interface {
	// Settled reports whether a plan may be made now, when no demand has come for the time quiet; window is after how long one usually is.
	Settled(quiet, window time.Duration) bool
	// More reports whether pods are likely to come that a plan made now can't know.
	More() bool
}

// Window is the time in which a burst is collected: it ends when the burst has settled, or at the latest longest after the burst's first pod. It
// belongs to the planner's goroutine.
type Window struct {
	arrivals      Arrivals
	clock         clock.WithTicker
	idle, longest time.Duration
	until         time.Time // when pods of the last plan's tail have waited for as long as they may; zero: there is no tail
}

// quietAlone is Arrivals where nothing is known of pods before they come.
type quietAlone struct{}

func (quietAlone) Settled(quiet, window time.Duration) bool { return quiet >= window }
func (quietAlone) More() bool                               { return false }

// NewWindow returns a Window. Whether a burst has settled is asked after each third of idle. Without Arrivals a burst has settled when no demand
// has come for idle.
func NewWindow(a Arrivals, c clock.WithTicker, idle, longest time.Duration) *Window {
	if a == nil {
		a = quietAlone{}
	}
	return &Window{arrivals: a, clock: c, idle: idle, longest: longest}
}

// Wait waits for demand, unless there is a tail, and then for the end of the window. It returns false when ctx has ended.
func (w *Window) Wait(ctx context.Context, demand <-chan struct{}) bool {
	tail, longest := !w.until.IsZero(), w.longest
	if tail {
		longest = w.until.Sub(w.clock.Now())
		w.until = time.Time{}
	} else {
		select {
		case <-ctx.Done():
			return false
		case <-demand:
		}
	}
	limit := w.clock.NewTimer(longest)
	defer limit.Stop()
	part := max(w.idle/3, 1)
	for quiet := time.Duration(0); ; {
		idle := w.clock.NewTimer(part)
		select {
		case <-ctx.Done():
			idle.Stop()
			return false
		case <-demand:
			idle.Stop()
			quiet = 0
		case <-idle.C():
			if quiet += part; w.arrivals.Settled(quiet, 3*part) && !(tail && w.arrivals.More()) {
				return true
			}
		case <-limit.C():
			idle.Stop()
			return true
		}
	}
}
