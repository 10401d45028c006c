package lifecycle

import (
	"sync"
	"time"
)

// ownPatience is how long this process itself waits before it gives something up for being late, however late recorded times make it look.
// These were read off another clock, the API server's or an earlier leader's, and ours may be minutes ahead; and a launch that a restart
// interrupted needs time to be resumed. As long as leaders last longer than this, everything late is given up in the end.
const ownPatience = 5 * time.Minute

// waits remembers since when this process has been waiting for what. Safe for concurrent use.
type waits struct {
	mu    sync.Mutex
	since map[string]map[string]time.Time // by claim or node, then by what it waits for
}

func newWaits() *waits { return &waits{since: map[string]map[string]time.Time{}} }

// begun returns when this process began to wait for something of a claim or a node: now, on the first call.
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

// left returns how much is left of a limit that began at a recorded time, or of ownPatience if that is longer.
func (c *Controller) left(name, what string, since time.Time, limit time.Duration, now time.Time) time.Duration {
	own := c.waits.begun(name, what, now).Add(min(limit, ownPatience))
	return max(since.Add(limit).Sub(now), own.Sub(now))
}
