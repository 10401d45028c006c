package guard

import (
	"maps"
	"time"
)

const (
	// zoneMemory is how long a machine that became initialized in another zone narrows machine faults to the zone they are in.
	zoneMemory = time.Hour
	// poolBreakers is how many workloads have to fail in a pool for the same cause to become one breaker of the pool.
	poolBreakers = 3
	// thrownWindow: pods thrown off machines are counted over this time.
	thrownWindow = time.Hour
	// mostOvertaken is how many rounds whose plan was overtaken are forgiven within an hour.
	mostOvertaken = 2
	// changesKept bounds the changes that are remembered for machines bought before them.
	changesKept = 200
)

// Guard is the state. Not safe for concurrent use.
type Guard struct {
	machines map[string]*machine
	rounds   map[string][]*machine
	failing  map[string]bool // rounds of which some have failed
	breakers map[Key]*Breaker
	// served is when a machine of a key last did work; initialized, by class, image and zone, when one last became initialized.
	served, initialized map[Key]time.Time
	// known are images, by class, of which a machine was initialized once.
	known  map[Key]bool
	thrown map[Key][]throw
	// forgiven are rounds machines of which failed by chance, as it seems.
	forgiven map[Key][]forgiven
	changes  []change
	out      []Notice
	// recovered: machines that are bought from now on are new.
	recovered bool
}

type throw struct {
	at    time.Time
	cause string
}

// forgiven is a round whose machines failed by chance, and when the first of them did.
type forgiven struct {
	round string
	at    time.Time
}

// change is something that bears on the breakers that match.
type change struct {
	at    time.Time
	match func(Key) bool
}

// Notice is something that has happened to a breaker.
type Notice struct {
	Kind NoticeKind
	Key  Key
	Text string
}

// NoticeKind says what has happened.
type NoticeKind string

// Notices: a breaker opened, a probe of it failed and the next is later, it closed, it is over without a probe's success, an image
// has had its first node.
const (
	Opened    NoticeKind = "Opened"
	Paused    NoticeKind = "Paused"
	Closed    NoticeKind = "Closed"
	Forgotten NoticeKind = "Forgotten"
	Known     NoticeKind = "Known"
)

// New returns a guard that knows nothing.
func New() *Guard {
	return &Guard{
		machines: map[string]*machine{}, rounds: map[string][]*machine{}, failing: map[string]bool{}, breakers: map[Key]*Breaker{},
		served: map[Key]time.Time{}, initialized: map[Key]time.Time{}, known: map[Key]bool{}, thrown: map[Key][]throw{}, forgiven: map[Key][]forgiven{},
	}
}

// Take returns what has happened since the last call.
func (g *Guard) Take() []Notice {
	out := g.out
	g.out = nil
	return out
}

func (g *Guard) note(kind NoticeKind, b *Breaker) {
	g.out = append(g.out, Notice{Kind: kind, Key: b.Key, Text: b.Text()})
}

// Buy takes down a machine that is about to be bought, or that was when a process before this one ran. name is its NodeClaim's.
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
		// One that was bought before the breaker opened was a probe of an earlier time, whose verdict it has had.
		if b := g.breakers[k]; b != nil && b.Open() && !m.At.Before(b.Since.Truncate(time.Second)) {
			// An earlier process may have seen it fail already.
			b.probe(name, g.recovered || b.Next.Sub(m.At) < minPause)
		}
	}
}

// Locate says as what the machine was launched.
func (g *Guard) Locate(name, image, zone string) {
	if m := g.machines[name]; m != nil {
		if image != "" {
			m.image = image
		}
		m.zone = zone
	}
}

// Tick forgets what is over: memories older than a day, trials whose cause has gone, and breakers of which nobody has bought a probe
// within a day of its being due: what they hold back is gone, or wants no machines any more.
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
			// Its pod may never run, for a reason of its own: the others don't wait for it for ever, but longer each time. It may still
			// succeed.
			b.leave()
			b.Next = now
			b.Failed++
		case b.Open() && b.Next.Sub(now) > maxPause:
			b.Next = now.Add(maxPause) // it was kept by a process with another clock
		}
	}
	for k, all := range g.thrown {
		if g.covering(k) == nil && now.Sub(all[len(all)-1].at) >= memory {
			delete(g.thrown, k)
		}
	}
	maps.DeleteFunc(g.forgiven, func(_ Key, all []forgiven) bool { return len(all) == 0 || now.Sub(all[len(all)-1].at) >= thrownWindow })
	for _, of := range []map[Key]time.Time{g.served, g.initialized} {
		for k, at := range of {
			if now.Sub(at) >= 2*memory {
				delete(of, k)
			}
		}
	}
}
