package guard

import (
	"maps"
	"time"
)

const (
	// zoneMemory: a machine fault counts for its zone only if machines of the image became initialized in another zone within this time.
	zoneMemory = time.Hour
	// poolBreakers is how many workloads have to fail in a pool for the same cause before their breakers become one breaker of the pool.
	poolBreakers = 3
	// thrownWindow is the time over which pods that were thrown off machines are counted.
	thrownWindow = time.Hour
	// mostOvertaken is how many rounds are forgiven within an hour because the cluster changed after their plans were made.
	mostOvertaken = 2
	// imageMemory is how long an image stays known after a machine of it was last initialized, if the guard watches no machine of it any more.
	imageMemory = 30 * 24 * time.Hour
	// changesKept is how many changes are remembered, which may excuse the failures of machines that were bought before them.
	changesKept = 200
)

// Guard holds all machines and breakers. It is not safe for concurrent use.
type Guard struct {
	machines map[string]*machine
	rounds   map[string][]*machine
	failing  map[string]bool // rounds in which a machine has failed
	breakers map[Key]*Breaker
	// served is when a machine of a key last served. initialized is when a machine of a class, image and zone last became initialized.
	served, initialized map[Key]time.Time
	// known are images, with their node class, of which a machine was initialized, and when one last was; zero: before this process started.
	known map[Key]time.Time
	// thrown are the pods of a workload that were thrown off machines of a pool.
	thrown map[Key][]throw
	// forgiven are rounds in which machines failed by chance, as it seems.
	forgiven map[Key][]forgiven
	changes  []change
	out      []Notice
	// recovered: all machines of earlier processes are known, those bought from now on are new.
	recovered bool
}

// throw is when a pod was thrown off a machine, and the Fault.Cause.
type throw struct {
	at    time.Time
	cause string
}

// forgiven is a round (the instances of one plan) whose failures are put down to chance, and when the first of them was.
type forgiven struct {
	round string
	at    time.Time
}

// change is a change that concerns the breakers whose keys match.
type change struct {
	at    time.Time
	match func(Key) bool
}

// Notice reports what happened to a breaker.
type Notice struct {
	Kind NoticeKind
	Key  Key
	Text string
}

// NoticeKind is the kind of a notice.
type NoticeKind string

// Kinds of notices.
const (
	Opened    NoticeKind = "Opened"    // a breaker opened
	Paused    NoticeKind = "Paused"    // its probe failed, and the next one is later
	Closed    NoticeKind = "Closed"    // its probe succeeded
	Forgotten NoticeKind = "Forgotten" // it ended without a successful probe
	Known     NoticeKind = "Known"     // an image has its first initialized node
)

// New returns an empty guard.
func New() *Guard {
	return &Guard{
		machines: map[string]*machine{}, rounds: map[string][]*machine{}, failing: map[string]bool{}, breakers: map[Key]*Breaker{},
		served: map[Key]time.Time{}, initialized: map[Key]time.Time{}, known: map[Key]time.Time{}, thrown: map[Key][]throw{}, forgiven: map[Key][]forgiven{},
	}
}

// Take returns the notices since the last call.
func (g *Guard) Take() []Notice {
	out := g.out
	g.out = nil
	return out
}

func (g *Guard) note(kind NoticeKind, b *Breaker) {
	g.out = append(g.out, Notice{Kind: kind, Key: b.Key, Text: b.Text()})
}

// Buy records a machine that is about to be bought, or that an earlier process bought. name is that of its NodeClaim.
func (g *Guard) Buy(name string, m Bought) {
	if g.machines[name] != nil {
		return
	}
	if len(m.Workloads) == 0 {
		m.Workloads = []Workload{NoPod}
	}
	one := &machine{Bought: m}
	g.machines[name] = one
	g.rounds[m.Round] = append(g.rounds[m.Round], one)
	for _, k := range m.Probes {
		// A machine that was bought before the breaker opened was a probe of an earlier opening, which has had its verdict.
		if b := g.breakers[k]; b != nil && b.Open() && !m.At.Before(b.Since.Truncate(time.Second)) {
			// If an earlier process saw this probe fail, it set the next one at least minPause later: then the breaker doesn't wait for this one.
			b.probe(name, g.recovered || b.Next.Sub(m.At) < minPause)
		}
	}
}

// Locate records the image and the zone with which the machine was launched.
func (g *Guard) Locate(name, image, zone string) {
	if m := g.machines[name]; m != nil {
		if image != "" {
			m.image = image
		}
		m.zone = zone
	}
}

// Tick forgets what is over: breakers that closed more than a day ago, breakers that let a workload try one machine in this pool (Trial) when it
// fails nowhere else any more, and open breakers for which no probe was bought within a day after one was due: what they stop is gone, or needs no
// machines any more.
func (g *Guard) Tick(now time.Time) {
	for _, b := range g.Breakers() {
		k := b.Key
		switch {
		case !b.Open() && now.Sub(b.Closed) >= memory && now.Sub(b.excuse) >= excuseSpacing,
			b.Trial && !b.Probing() && g.failsElsewhere(k) == nil,
			b.Open() && !b.Refused && !b.Probing() && now.Sub(b.Next) >= memory:
			delete(g.breakers, k)
			g.note(Forgotten, b)
		case b.Open() && b.Probing() && now.Sub(g.probedSince(b)) >= b.patience():
			// The pod of this probe may never run, for a reason of its own. So after patience() the next probe may be launched without a
			// verdict on this one, which may still succeed.
			b.leave()
			b.Next = now
			b.Failed++
		case b.Open() && b.Next.Sub(now) > maxPause:
			b.Next = now.Add(maxPause) // it was stored by a process with another clock
		}
	}
	for k, all := range g.thrown {
		if g.covering(k) == nil && now.Sub(all[len(all)-1].at) >= memory {
			delete(g.thrown, k)
		}
	}
	g.forgetImages(now)
	maps.DeleteFunc(g.forgiven, func(_ Key, all []forgiven) bool { return len(all) == 0 || now.Sub(all[len(all)-1].at) >= thrownWindow })
	for _, of := range []map[Key]time.Time{g.served, g.initialized} {
		for k, at := range of {
			if now.Sub(at) >= 2*memory {
				delete(of, k)
			}
		}
	}
}

// forgetImages forgets images that are no longer in use. Records have no times, so an image that is known from one counts as used just now.
func (g *Guard) forgetImages(now time.Time) {
	for k, at := range g.known {
		switch {
		case at.IsZero():
			g.known[k] = now
		case now.Sub(at) >= imageMemory && !g.uses(k):
			delete(g.known, k)
		}
	}
}

// uses reports whether a machine of the image exists.
func (g *Guard) uses(k Key) bool {
	for _, m := range g.machines {
		if m.of(k) {
			return true
		}
	}
	return false
}
