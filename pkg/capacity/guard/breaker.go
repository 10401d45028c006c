package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
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
	// mostFailing bounds the members of a breaker.
	mostFailing = 200
	// mostLost probes in a row without a verdict count as one that failed.
	mostLost = 3
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
	// Life is that of the longest-lived machine that failed, at most maxPause.
	Life time.Duration
	// Refused: the API server refused the Node. It is asked again with a dry run, which costs nothing, and until it agrees
	// no machine is bought.
	Refused bool
	// Trial: nothing has failed here, but in another pool. One machine is tried at once.
	Trial bool
	// Members are the workloads whose breakers one of a pool has replaced, and those that have failed since. Its probe should be
	// for another workload, if one waits: that frees all others.
	Members []Workload
	// Early are the early probes of the last day.
	Early []time.Time
	// Tried are zones in which machines failed that a breaker of more than one zone counts, the latest last: its probe should go to
	// another, or to the first of them, so that one bad zone doesn't keep the others closed.
	Tried []string
	// probes are the machines under way as probes; a gang has several. false: the next probe doesn't wait for this one any more, and
	// its failure says nothing, because it was bought before a change or another of its gang has failed. It may still succeed.
	probes map[string]bool
	lost   int       // probes without a verdict since one had one
	excuse time.Time // the change because of which failures were last forgiven
	asked  time.Time // when a trial last held pods back
	// changed: what bears on it has changed since the last probe failed.
	changed bool
	// replaced are those whose place it has taken.
	replaced []*Breaker
}

// Open says that the breaker holds anything back.
func (b *Breaker) Open() bool { return b.Closed.IsZero() }

// failedFor says that the breaker is open because pods of the workload failed.
func (b *Breaker) failedFor(w Workload) bool {
	return b.Key.Workload == w || b.Key.PoolWide() && slices.Contains(b.Members, w)
}

// Probing says that a probe is under way.
func (b *Breaker) Probing() bool {
	for _, awaited := range b.probes {
		if awaited {
			return true
		}
	}
	return false
}

func (b *Breaker) probe(name string, awaited bool) {
	if b.probes == nil {
		b.probes = map[string]bool{}
	}
	b.probes[name] = awaited
}

// join adds a workload to those that a breaker of a pool stands for.
func (b *Breaker) join(w Workload) {
	if b.Key.PoolWide() && w != (Workload{}) && len(b.Members) < mostFailing && !slices.Contains(b.Members, w) {
		b.Members = append(b.Members, w)
	}
}

// tried takes down where a machine failed.
func (b *Breaker) tried(zone string) {
	if b.Key.Machine() && b.Key.Zone == "" && zone != "" {
		b.Tried = append(slices.DeleteFunc(b.Tried, func(z string) bool { return z == zone }), zone)
	}
}

// leave has the next probe not wait for those under way.
func (b *Breaker) leave() {
	for name := range b.probes {
		b.probes[name] = false
	}
}

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

// patience is how long a probe without a verdict is waited for. A pool's is for one of many workloads that have nothing in common.
func (b *Breaker) patience() time.Duration {
	if b.Key.PoolWide() {
		return b.pause(b.Failed)
	}
	return maxPause
}

// fail takes down that a probe has failed.
func (b *Breaker) fail(now time.Time) {
	b.Next = now.Add(b.pause(b.Failed))
	b.Failed++
	b.Trial, b.changed, b.lost = false, false, 0
	b.leave()
}

// early makes a probe due now because something that bears on the breaker has changed. forced: a user asks for it. One that is under
// way was bought before the change, so it isn't waited for.
func (b *Breaker) early(now time.Time, forced bool) bool {
	waits := now.Before(b.Next) || b.Probing()
	if !b.Open() || !forced && waits && !b.mayBeEarly(now) {
		return false
	}
	if waits {
		if !forced {
			b.Early = append(b.Early, now)
		}
		b.Next = now
		b.leave()
	}
	b.changed = true
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
	next := fmt.Sprintf("one machine is tried from %s on, once pods wait for it, or after a change", b.Next.UTC().Format(time.RFC3339))
	switch {
	case !b.Open():
		return fmt.Sprintf("launches for %s go on: a machine has done work; they were paused since %s: %s", b.Key, b.Since.UTC().Format(time.RFC3339), what)
	case b.Probing():
		next = "one machine is being tried"
	case b.Refused:
		next = "a machine is tried once the API server would accept its Node, which is asked each minute"
	}
	return fmt.Sprintf("launches for %s are paused since %s: %s; %s (annotation %s: at once)",
		b.Key, b.Since.UTC().Format(time.RFC3339), what, next, objects.AnnotationRetry)
}
