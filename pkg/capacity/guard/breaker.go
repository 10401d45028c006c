package guard

import (
	"fmt"
	"slices"
	"time"
)

const (
	// minPause and maxPause bound the time between probes: it begins with twice the life of the longest-lived machine that
	// failed, or minPause, and doubles.
	minPause = 15 * time.Minute
	maxPause = 6 * time.Hour
	// memory is how long a breaker that has closed goes on where it stood when it opens again.
	memory = 24 * time.Hour
	// A change of what bears on a breaker has it probed early, not oftener than each earlySpacing and earlyPerDay times a day.
	earlySpacing = 10 * time.Minute
	earlyPerDay  = 6
	// excuseSpacing: a machine that was bought before such a change doesn't open a breaker, once in this time.
	excuseSpacing = time.Hour
	// lostProbe is how long a probe that has neither failed nor succeeded keeps the next one waiting.
	lostProbe = time.Minute
)

// Breaker is one key that fails, or has failed within a day.
type Breaker struct {
	Key Key
	// Cause is what the machines failed of, for comparison; Message says it to people.
	Cause, Message string
	// Since is when it opened; Closed when a probe succeeded: from then on it only remembers. Zero while it is open.
	Since, Closed time.Time
	// Next is when a probe may be bought. Failed counts probes that failed, which the pause doubles with.
	Next   time.Time
	Failed int
	// Life is that of the longest-lived machine that failed.
	Life time.Duration
	// Refused: the API server refused the Node. It is asked again with a dry run, which costs nothing, and until it agrees
	// no machine is bought.
	Refused bool
	// Trial: nothing has failed here, but in another pool. One machine is tried at once.
	Trial bool
	// Members are the workloads whose breakers one of a pool has replaced.
	Members []Workload
	// Early are the early probes of the last day.
	Early []time.Time
	// probes are the machines under way as probes; a gang has several.
	probes map[string]bool
	excuse time.Time // when a failure was last forgiven because of a change
}

// Open says that the breaker holds anything back.
func (b *Breaker) Open() bool { return b.Closed.IsZero() }

// failedFor says that the breaker is open because pods of the workload failed.
func (b *Breaker) failedFor(w Workload) bool {
	return b.Key.Workload == w || b.Key.PoolWide() && slices.Contains(b.Members, w)
}

// Probing says that a probe is under way.
func (b *Breaker) Probing() bool { return len(b.probes) > 0 }

// due says that a probe may be bought now.
func (b *Breaker) due(now time.Time) bool {
	return b.Open() && !b.Probing() && !b.Refused && !now.Before(b.Next)
}

// pause is the time before the next probe when so many have failed.
func (b *Breaker) pause(failed int) time.Duration {
	d := max(minPause, 2*b.Life)
	for range failed {
		if d >= maxPause {
			break
		}
		d *= 2
	}
	return min(d, maxPause)
}

// fail takes down that a probe has failed.
func (b *Breaker) fail(now time.Time) {
	b.Next = now.Add(b.pause(b.Failed))
	b.Failed++
	b.probes, b.Trial = nil, false
}

// early makes a probe due now because something that bears on the breaker has changed. forced: somebody asks for it.
func (b *Breaker) early(now time.Time, forced bool) bool {
	if !b.Open() || !forced && now.Before(b.Next) && !b.mayBeEarly(now) {
		return false
	}
	if now.Before(b.Next) {
		if !forced {
			b.Early = append(b.Early, now)
		}
		b.Next = now
	}
	b.Refused = false
	return true
}

func (b *Breaker) mayBeEarly(now time.Time) bool {
	b.Early = slices.DeleteFunc(b.Early, func(at time.Time) bool { return now.Sub(at) >= memory })
	n := len(b.Early)
	return n < earlyPerDay && (n == 0 || now.Sub(b.Early[n-1]) >= earlySpacing)
}

// Text says why nothing is bought, since when, and what would end that.
func (b *Breaker) Text() string {
	what := b.Message
	if b.Trial {
		what = "its machines fail in another pool: " + what
	}
	next := fmt.Sprintf("the next machine is tried at %s, or after a change", b.Next.UTC().Format(time.RFC3339))
	switch {
	case b.Probing():
		next = "one machine is being tried"
	case b.Refused:
		next = "a machine is tried once the API server would accept its Node, which is asked each minute"
	}
	return fmt.Sprintf("launches for %s are paused since %s: %s; %s (annotation dovetail.sh/retry: at once)",
		b.Key, b.Since.UTC().Format(time.RFC3339), what, next)
}
