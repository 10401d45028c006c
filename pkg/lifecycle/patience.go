package lifecycle

import (
	"sync"
	"time"
)

// ownPatience is how long this process waits by itself for what is given up for being late, however late it is by the times that
// are written on it. These were read off another clock, the API server's or an earlier leader's, and ours may be minutes ahead; a
// launch that a restart has cut short has to be taken up again. As long as leaders last so long, everything is given up in the end.
const ownPatience = 5 * time.Minute

// waits remember since when this process has been waiting for what. Safe for concurrent use.
type waits struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // claim or node, what it waits for
}

func newWaits() *waits { return &waits{since: map[string]map[string]time.Time{}} }

// begun is when this process began to wait for something of a claim or a node: now, if it is asked for the first time.
func (w *waits) begun(name, what string, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since[name] == nil {
		w.since[name] = map[string]time.Time{}
	}
	if _, ok := w.since[name][what]; !ok {
		w.since[name][what] = now
	}
	return w.since[name][what]
}

func (w *waits) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, name)
}

// left is how much of a limit is left that began at a time that somebody has written down, and of our own patience.
func (c *Controller) left(name, what string, since time.Time, limit time.Duration, now time.Time) time.Duration {
	own := c.waits.begun(name, what, now).Add(min(limit, ownPatience))
	return max(since.Add(limit).Sub(now), own.Sub(now))
}
