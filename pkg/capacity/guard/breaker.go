package guard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// minPause and maxPause bound the pause between probes. The first pause is twice the life of the longest-lived machine that failed,
	// or minPause; later ones double.
	minPause = 15 * time.Minute
	maxPause = 6 * time.Hour
	// memory is how long a closed breaker is remembered: if it opens again within this time, its pauses continue where they stood.
	memory = 24 * time.Hour
	// A change that concerns a breaker makes its probe due early, at most once per earlySpacing and earlyPerDay times a day.
	earlySpacing = 10 * time.Minute
	earlyPerDay  = 6
	// excuseSpacing: failures of machines that were bought before a change that concerns the breaker don't open it. Only one change per
	// excuseSpacing has this effect.
	excuseSpacing = time.Hour
	// mostFailing limits Breaker.Members, the workloads that a pool's breaker names: the names of further ones are not recorded.
	mostFailing = 200
	// mostLost consecutive probes without a verdict count as one that failed.
	mostLost = 3
	// lostProbe is how long the next probe waits after one that has neither failed nor succeeded.
	lostProbe = time.Minute
)

// Breaker belongs to one key that fails or has failed within a day.
type Breaker struct {
	Key Key
	// Cause names why the machines failed, in words that are the same for all that fail for this cause; Message explains it to people.
	Cause, Message string
	// Since is when it opened. Closed is when a probe succeeded, zero while it is open; a closed breaker only remembers.
	Since, Closed time.Time
	// Next is when a probe may be bought. Failed counts failed probes; each doubles the pause.
	Next   time.Time
	Failed int
	// Life is the life of the longest-lived machine that failed, at most maxPause.
	Life time.Duration
	// Refused: the API server refused the Node. It is asked again with a dry run, which costs nothing; until it accepts the Node, no
	// machine is bought.
	Refused bool
	// Trial: the workload fails in another pool, and nothing has failed here. A first machine may be tried without a pause.
	Trial bool
	// Members are the workloads whose breakers a pool's breaker has replaced, and those that have failed since. If another workload
	// waits, the probe should be for that one: its success ends the pause for all workloads but the members.
	Members []Workload
	// Early are the times of the probes within the last day that came before Next, because something had changed (docs/guard.md).
	Early []time.Time
	// Tried, of a breaker that applies to all zones, are the zones in which machines failed, the latest last. Its probe should go to a
	// zone that isn't among them, or else to the first of them, so that launches in the other zones don't stay paused because
	// of one bad zone.
	Tried []string
	// probes are the probes in progress, by NodeClaim; a gang has several. false: the next probe doesn't wait for this one any more, and
	// its failure no longer counts, because it was bought before a change or another one of its gang has failed. It may still succeed.
	probes map[string]bool
	lost   int       // how many probes in a row have ended without a verdict
	excuse time.Time // time of the last change because of which failures were forgiven
	asked  time.Time // with Trial: when the breaker last made pods wait
	// changed: something that concerns the breaker has changed since the last probe failed.
	changed bool
	// replaced are the narrower breakers that this one has replaced. When it closes, they close, too, or open again.
	replaced []*Breaker
	// repaired is set only on a breaker of repairs (RepairKey): the name of the NodeClaim whose repair it has counted last.
	repaired string
}

// Open reports whether the breaker stops launches.
func (b *Breaker) Open() bool { return b.Closed.IsZero() }

// failedFor reports whether the breaker opened because pods of the workload failed.
func (b *Breaker) failedFor(w Workload) bool {
	return b.Key.Workload == w || b.Key.PoolWide() && slices.Contains(b.Members, w)
}

// Probing reports whether a probe is in progress that the next one has to wait for.
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

// join adds a workload to the members of a pool's breaker.
func (b *Breaker) join(w Workload) {
	if b.Key.PoolWide() && w != (Workload{}) && len(b.Members) < mostFailing && !slices.Contains(b.Members, w) {
		b.Members = append(b.Members, w)
	}
}

// tried records the zone in which a machine failed.
func (b *Breaker) tried(zone string) {
	if b.Key.Machine() && b.Key.Zone == "" && zone != "" {
		b.Tried = append(slices.DeleteFunc(b.Tried, func(z string) bool { return z == zone }), zone)
	}
}

// leave makes the next probe not wait for those in progress.
func (b *Breaker) leave() {
	for name := range b.probes {
		b.probes[name] = false
	}
}

// due reports whether a probe may be bought now.
func (b *Breaker) due(now time.Time) bool {
	return b.Open() && !b.Probing() && !b.Refused && !now.Before(b.Next)
}

// pause returns the pause between probes for a number of failed probes: it doubles with each of them, up to maxPause.
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

// patience returns how long a breaker waits for a probe without a verdict. A pool's breaker waits for a shorter time: its probe is for
// one of many workloads that have nothing in common.
func (b *Breaker) patience() time.Duration {
	if b.Key.PoolWide() {
		return b.pause(b.Failed)
	}
	return maxPause
}

// fail records that a probe has failed.
func (b *Breaker) fail(now time.Time) {
	b.Next = now.Add(b.pause(b.Failed))
	b.Failed++
	b.Trial, b.changed, b.lost = false, false, 0
	b.leave()
}

// early makes a probe due now because something that concerns the breaker has changed or, if forced, because a user asked for it. A probe
// in progress was bought before the change, so the next one doesn't wait for it. early returns false if the breaker is closed or has had
// too many early probes.
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

// Text returns why nothing is bought, since when, and what would end that.
func (b *Breaker) Text() string {
	if b.Key.Repair() {
		return b.repairText()
	}
	what := cmp.Or(b.Message, b.Cause) // a long record has no messages
	if b.Trial {
		what = "its machines fail in another pool: " + what
	}
	next := fmt.Sprintf("one machine is tried from %s on, or after a change", b.Next.UTC().Format(time.RFC3339))
	switch {
	case !b.Open():
		return fmt.Sprintf("launches for %s are resumed: a machine has served; they were paused since %s: %s", b.Key, b.Since.UTC().Format(time.RFC3339), what)
	case b.Probing():
		next = "one machine is being tried"
	case b.Refused:
		next = "the next machine is tried once the API server accepts its Node in a dry run, which is repeated each minute"
	}
	// Texts that are too long lose their end: the cause can be read on the pool or the class, too.
	return fmt.Sprintf("launches are paused since %s; %s (annotation %s: at once). For %s: %s",
		b.Since.UTC().Format(time.RFC3339), next, objects.AnnotationRetry, b.Key, what)
}
