package lifecycle

import "time"

// ownPatience is how long this process itself waits before it gives something up for being late, however late it is by the recorded times.
// The recorded times come from another clock, the API server's or an earlier leader's, and ours may be minutes ahead; and a launch that a
// restart interrupted needs time to be resumed. As long as leaders last longer than this, everything late is given up in the end.
const ownPatience = 5 * time.Minute

// waits remembers when this process began to wait for something, by the name of the claim or node, and then by what it waits for.
type waits struct {
	memory[string, map[string]time.Time]
}

// left returns how much is left of a limit that began at the recorded time since. It isn't over before ownPatience (or limit, if that is shorter)
// has passed since the first call in this process.
func (w *waits) left(name, what string, since time.Time, limit time.Duration, now time.Time) time.Duration {
	begun := now // on the first call
	w.update(name, func(of map[string]time.Time, ok bool) map[string]time.Time {
		if !ok {
			of = map[string]time.Time{}
		}
		if at, ok := of[what]; ok {
			begun = at
		} else {
			of[what] = now
		}
		return of
	})
	own := begun.Add(min(limit, ownPatience))
	return max(since.Add(limit).Sub(now), own.Sub(now))
}
