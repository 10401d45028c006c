package chaos

import (
	"sync"
	"time"
)

// acts is how long the product may take from looking to acting: several calls, each of which may be slow.
const acts = 20 * time.Second

// leads is how many leaders there were lately, and how slow their watches.
type leads struct {
	mu       sync.Mutex
	together time.Time // until when two leaders may not know of each other
	lag      time.Duration
	until    time.Time // until when watches may be so slow
}

func (l *leads) look(now time.Time, leaders int, lag time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lag >= l.lag || now.After(l.until) {
		l.lag, l.until = lag, now.Add(lag+acts)
	}
	if leaders > 1 {
		l.together = now.Add(acts + l.lag)
	}
}

// late returns how old what a process knows may be, and whether there may be two leaders.
func (c *checker) late() (behind time.Duration, together bool) {
	c.leads.mu.Lock()
	defer c.leads.mu.Unlock()
	return acts + c.leads.lag, !time.Now().After(c.leads.together)
}
