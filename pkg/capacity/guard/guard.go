package guard

import (
	"maps"
	"slices"
	"time"
)

const (
	// zoneMemory is how long a machine that became initialized in another zone narrows machine faults to the zone they are in.
	zoneMemory = time.Hour
	// poolBreakers is how many workloads have to fail in a pool for the same cause to become one breaker of the pool.
	poolBreakers = 3
	// thrownWindow: pods thrown off machines are counted over this time.
	thrownWindow = time.Hour
	// changesKept bounds the changes that are remembered for machines bought before them.
	changesKept = 200
)

// Guard is the state. Not safe for concurrent use.
type Guard struct {
	machines map[string]*machine
	rounds   map[string][]*machine
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
		machines: map[string]*machine{}, rounds: map[string][]*machine{}, breakers: map[Key]*Breaker{},
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
		if b := g.breakers[k]; b != nil && b.Open() {
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

// Initialized says that the machine's node is fit for what it was bought for.
func (g *Guard) Initialized(name string, at time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	m.initialized = at
	g.latest(g.initialized, MachineKey(m.Class, m.image, m.zone), at)
	g.latest(g.initialized, MachineKey(m.Class, m.image, ""), at)
	if k := MachineKey(m.Class, m.image, ""); m.image != "" && !g.known[k] {
		g.known[k] = true
		g.out = append(g.out, Notice{Kind: Known, Key: k})
	}
}

// Ran says that a pod of the workload is Running on the machine. That is no work yet.
func (g *Guard) Ran(name string, w Workload) {
	if m := g.machines[name]; m != nil && !slices.Contains(m.ran, w) {
		m.ran = append(m.ran, w)
	}
}

// Steady says that the node has been initialized for as long as it takes to believe it. That is all the work of a machine that was
// bought for no pod, and it proves the image.
func (g *Guard) Steady(name string, now time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	if !m.forPods() {
		g.Serve(name, Workload{}, now)
	}
	for _, b := range g.probed(name) {
		if b.Key.Machine() {
			g.close(b, now, m.of)
		}
	}
	at := now
	if !m.initialized.IsZero() {
		at = m.initialized // a process that has just begun hears of old machines
	}
	g.latest(g.served, MachineKey(m.Class, m.image, ""), at)
	g.latest(g.served, MachineKey(m.Class, m.image, m.zone), at)
}

// Serve says that the machine has done work for a workload. The zero workload: for none in particular; NoPod: for somebody, and that closes
// no breaker of a workload. What pods do later on a machine that has long done work says nothing about new ones.
func (g *Guard) Serve(name string, w Workload, now time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	if !m.served {
		for _, k := range []Key{MachineKey(m.Class, m.image, ""), MachineKey(m.Class, m.image, m.zone), PoolKey(m.Pool, "")} {
			g.latest(g.served, k, now)
		}
	}
	m.served = true
	worked := []Workload{w}
	switch w {
	case Workload{}:
		worked = m.Workloads
	case NoPod: // a process before this one knew for whom
		worked = append(worked, m.Workloads...)
	}
	for _, w := range worked {
		if !slices.Contains(m.worked, w) {
			m.worked = append(m.worked, w)
			g.latest(g.served, PodKey(m.Pool, w), now)
		}
	}
	for _, b := range g.probed(name) {
		switch {
		case b.Key.Machine():
			g.close(b, now, m.of)
		case b.Key.PoolWide():
			failed := w == (Workload{}) || slices.Contains(b.Members, w)
			g.close(b, now, func(Key) bool { return failed })
		case b.Key.Workload == w || w == (Workload{}):
			g.close(b, now, m.of)
		}
	}
}

func (g *Guard) latest(of map[Key]time.Time, k Key, at time.Time) {
	if at.After(of[k]) {
		of[k] = at
	}
}

// Served says that the machine has done work; nothing that happens to it makes it a failure any more.
func (g *Guard) Served(name string) bool { return g.machines[name] != nil && g.machines[name].served }

// Decided says that the machine has had its verdict, or is none of the guard's.
func (g *Guard) Decided(name string) bool {
	m := g.machines[name]
	return m == nil || m.served || m.failed
}

// Fail says that the machine ended, or that its pods were thrown off it, before it had done work. Pods may be thrown off one by one:
// each call counts for workloads that it has not failed for yet. A machine that has done work doesn't fail, but it is a failed
// probe of those workloads' breakers whose pods were thrown off it (f.Workloads).
func (g *Guard) Fail(name string, f Fault, now time.Time) {
	m := g.machines[name]
	if m == nil || m.broken || f.Machine && (m.failed || m.served) || m.served && len(f.Workloads) == 0 {
		return
	}
	keys := slices.DeleteFunc(m.keys(&f, g.narrow), func(k Key) bool {
		return slices.Contains(m.faults, k) || f.Chance > 0 && g.forgives(k, m.Round, f.Chance, now)
	})
	if len(keys) == 0 && f.Chance > 0 {
		return
	}
	f.Message = "NodeClaim " + name + ": " + f.Message
	m.failed, m.broken = m.failed || !m.served, f.Machine
	m.faults = append(m.faults, keys...)
	life := min(now.Sub(m.At), maxPause)
	for _, b := range g.probed(name) {
		// If it failed of something else it says nothing about this, and may still do so while it lives (End).
		if slices.ContainsFunc(keys, b.Key.covers) || b.Key.Machine() && f.Machine {
			g.failProbe(b, name, &f, life, now)
		}
	}
	if m.served {
		return
	}
	for _, k := range keys {
		if b := g.covering(k); b != nil {
			b.Life = max(b.Life, life)
			b.join(k.Workload)
			b.tried(m.zone)
			continue
		}
		bought, failed := 0, 0
		for _, o := range g.rounds[m.Round] {
			if o.of(k) {
				bought++
				if o.failedOf(k) {
					failed++
				}
			}
		}
		if 2*failed >= bought && !g.served[k].After(m.At) && !g.excused(k, m.At, now) {
			g.open(k, f, life, now)
			g.breakers[k].tried(m.zone)
		}
	}
	g.merge(m.Pool, f.Cause, now)
}

// forgives says that nothing follows from a failure that may be chance: so many rounds are forgiven within an hour, where nothing has
// failed for a day. What fails more often would have the next machines fail, too.
func (g *Guard) forgives(k Key, round string, most int, now time.Time) bool {
	if b := g.breakers[k]; b != nil && (b.Open() || now.Sub(b.Closed) < memory) {
		return false
	}
	all := slices.DeleteFunc(g.forgiven[k], func(f forgiven) bool { return now.Sub(f.at) >= thrownWindow })
	known := slices.ContainsFunc(all, func(f forgiven) bool { return f.round == round })
	if !known && len(all) < most {
		known, all = true, append(all, forgiven{round, now})
	}
	g.forgiven[k] = all
	return known
}

// failProbe takes down that a probe has failed.
func (g *Guard) failProbe(b *Breaker, name string, f *Fault, life time.Duration, now time.Time) {
	awaited := b.probes[name]
	delete(b.probes, name)
	b.Life = max(b.Life, life)
	b.tried(g.machines[name].zone)
	if !awaited {
		return
	}
	kind := Paused
	if b.Trial {
		kind = Opened
	}
	b.Cause, b.Message = f.Cause, f.Message
	b.fail(now)
	b.Refused = f.Refused
	g.note(kind, b)
}

// narrow is the key of a machine fault: the zone's if machines of the image came up in another zone since an hour before this one
// was bought, and while the zone's breaker is open: its probes say nothing about zones where nothing was tried.
func (g *Guard) narrow(m *machine, image string) Key {
	all, here := MachineKey(m.Class, image, ""), MachineKey(m.Class, image, m.zone)
	if image == "" || m.zone == "" {
		return all
	}
	if b := g.breakers[here]; b != nil && b.Open() {
		return here
	}
	for k, at := range g.initialized {
		if k.Class == m.Class && k.Image == image && k.Zone != "" && k.Zone != m.zone && m.At.Sub(at) < zoneMemory {
			return here
		}
	}
	return all
}

// covering is the open breaker that holds the key back; nil: none.
func (g *Guard) covering(k Key) *Breaker {
	if b := g.breakers[k]; b != nil && b.Open() && !b.Trial {
		return b
	}
	var found *Breaker
	for _, b := range g.breakers {
		if b.Open() && !b.Trial && b.Key.covers(k) && (found == nil || compareKeys(b.Key, found.Key) < 0) {
			found = b
		}
	}
	return found
}

// open opens a breaker. One that has closed within a day goes on where it stood.
func (g *Guard) open(k Key, f Fault, life time.Duration, now time.Time) {
	b := g.breakers[k]
	if b == nil || !b.Open() && now.Sub(b.Closed) >= memory {
		fresh := &Breaker{Key: k, Since: now, Next: now}
		if b != nil {
			fresh.excuse = b.excuse
		}
		b = fresh
		g.breakers[k] = b
	}
	again := !b.Open()
	b.Cause, b.Message, b.Refused, b.Trial = f.Cause, f.Message, f.Refused, false
	b.Life = max(b.Life, life)
	if again {
		b.Since, b.Closed, b.Members, b.probes, b.replaced = now, time.Time{}, nil, nil, nil
	}
	for _, o := range g.Breakers() {
		if o != b && o.Open() && k.covers(o.Key) {
			g.absorb(b, o)
		}
	}
	if again {
		b.fail(now)
	}
	g.note(Opened, b)
}

// absorb replaces a breaker by one that covers it. Its pauses don't become those of what has not failed, but it keeps them for when
// the other closes.
func (g *Guard) absorb(b, o *Breaker) {
	b.Life = max(b.Life, o.Life)
	if !o.Trial {
		b.join(o.Key.Workload)
		for _, w := range o.Members {
			b.join(w)
		}
		b.replaced = append(append(b.replaced, o.replaced...), o)
	}
	for name, awaited := range o.probes {
		b.probe(name, awaited || b.probes[name])
	}
	delete(g.breakers, o.Key)
}

// merge makes one breaker of a pool's that are open for the same cause, if no machine of the pool has done work since the first
// of them opened. Those that opened before one did don't count.
func (g *Guard) merge(pool, cause string, now time.Time) {
	if pool == "" {
		return // NodeClaims of users that name no pool have nothing in common
	}
	var same []*Breaker
	served := g.served[PoolKey(pool, "")]
	for _, b := range g.Breakers() {
		if b.Open() && !b.Trial && !b.Key.Machine() && !b.Key.PoolWide() && b.Key.Pool == pool && b.Cause == cause && !served.After(b.Since) {
			same = append(same, b)
		}
	}
	if len(same) < poolBreakers {
		return
	}
	first := slices.MinFunc(same, func(a, b *Breaker) int { return a.Since.Compare(b.Since) })
	g.open(PoolKey(pool, cause), Fault{Cause: cause, Message: first.Message}, first.Life, now)
}

// excused says that a failure is forgiven, because the machine was bought before a change that bears on it. One change forgives
// all that were bought before it; the next that does is an hour later.
func (g *Guard) excused(k Key, bought, now time.Time) bool {
	b := g.breakers[k]
	if b != nil && bought.Before(b.excuse) {
		return true
	}
	i := slices.IndexFunc(g.changes, func(c change) bool {
		return c.at.After(bought) && c.match(k) && (b == nil || b.excuse.IsZero() || c.at.Sub(b.excuse) >= excuseSpacing)
	})
	if i < 0 {
		return false
	}
	if b == nil {
		b = &Breaker{Key: k, Since: now, Closed: now.Add(-memory)} // remembers the excuse only
		g.breakers[k] = b
	}
	b.excuse = g.changes[i].at
	return true
}

// Throw says that a pod of a workload, whose controller wants so many, was thrown off a machine soon after that was bought,
// whether the machine had done work or not. More often than twice the number within an hour opens the workload's breaker; half
// of the number, once it has been open within a day.
func (g *Guard) Throw(pool string, w Workload, desired int, cause, message string, now time.Time) {
	k := PodKey(pool, w)
	g.thrown[k] = append(slices.DeleteFunc(g.thrown[k], func(t throw) bool { return now.Sub(t.at) >= thrownWindow }), throw{now, cause})
	f := Fault{Cause: cause, Message: message}
	if b := g.covering(k); b != nil {
		b.join(w)
		for _, name := range slices.Sorted(maps.Keys(b.probes)) {
			if m := g.machines[name]; m != nil && m.served {
				g.failProbe(b, name, &f, min(now.Sub(m.At), maxPause), now) // it works for others, not for this workload
			}
		}
		return
	}
	desired = max(desired, 1)
	if b := g.breakers[k]; b != nil && !b.Open() && now.Sub(b.Closed) < memory {
		since := 0
		for _, t := range g.thrown[k] {
			if t.at.After(b.Closed) {
				since++
			}
		}
		if 2*since >= desired {
			g.open(k, f, b.Life, now)
		}
	} else if len(g.thrown[k]) > 2*desired {
		g.open(k, f, 0, now)
	}
	if b := g.breakers[PoolKey(pool, cause)]; b != nil && !b.Open() && now.Sub(b.Closed) < memory && g.workloadsThrown(pool, cause, b.Closed) >= poolBreakers {
		g.open(b.Key, f, b.Life, now)
	}
	g.merge(pool, cause, now)
}

// workloadsThrown is how many workloads' pods were thrown off machines of the pool for the cause.
func (g *Guard) workloadsThrown(pool, cause string, since time.Time) int {
	n := 0
	for k, all := range g.thrown {
		if k.Pool == pool && slices.ContainsFunc(all, func(t throw) bool { return t.at.After(since) && t.cause == cause }) {
			n++
		}
	}
	return n
}

// End says that the machine is over, or that nobody will say more of it.
func (g *Guard) End(name string, now time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	for _, b := range g.probed(name) {
		g.lose(b, name, now)
	}
	delete(g.machines, name)
	m.over = true
	if !slices.ContainsFunc(g.rounds[m.Round], func(o *machine) bool { return !o.over }) {
		delete(g.rounds, m.Round)
	}
}

// lose takes a probe off a breaker that it says nothing about.
func (g *Guard) lose(b *Breaker, name string, now time.Time) {
	awaited := b.probes[name]
	delete(b.probes, name)
	if !awaited {
		return
	}
	// Each may be nobody's failure. A row of them is a machine a minute all the same.
	if b.lost++; b.lost >= mostLost {
		b.fail(now)
		g.note(Paused, b)
		return
	}
	if next := now.Add(lostProbe); b.Next.Before(next) {
		b.Next = next
	}
}

// close takes down that a probe has succeeded. Breakers that this one has replaced, and those of workloads and zones that have failed
// since, are closed, too, if something has changed or as far as the probe proves anything about them; others are back, and their
// probes are due.
func (g *Guard) close(b *Breaker, now time.Time, proves func(Key) bool) {
	if !b.Key.Machine() {
		g.latest(g.served, PoolKey(b.Key.Pool, b.Cause), now)
	}
	trial := b.Trial
	b.Closed, b.probes, b.Trial, b.Refused = now, nil, false, false
	back := b.replaced
	for _, z := range b.Tried {
		if k := MachineKey(b.Key.Class, b.Key.Image, z); b.Key.Image != "" && !slices.ContainsFunc(back, func(o *Breaker) bool { return o.Key == k }) {
			back = append(back, &Breaker{Key: k, Cause: b.Cause, Message: b.Message, Since: b.Since, Failed: b.Failed, Life: b.Life})
		}
	}
	for _, w := range b.Members {
		k := PodKey(b.Key.Pool, w)
		switch o := g.breakers[k]; {
		case slices.ContainsFunc(back, func(o *Breaker) bool { return o.Key == k }):
		case o != nil && now.Sub(o.Closed) < memory:
			back = append(back, o)
		default:
			back = append(back, &Breaker{Key: k, Cause: b.Cause, Message: b.Message, Since: b.Since, Failed: b.Failed, Life: b.Life})
		}
	}
	for _, o := range back {
		if o.Key == b.Key {
			continue
		}
		o.Next, o.Closed, o.probes, o.replaced, o.Refused = now, time.Time{}, nil, nil, false
		if b.changed || proves(o.Key) {
			o.Closed = now
		}
		g.breakers[o.Key] = o
	}
	b.replaced, b.Tried = nil, nil
	if trial && b.Failed == 0 {
		delete(g.breakers, b.Key)
	}
	g.note(Closed, b)
}

// probedSince is when the latest probe that a breaker waits for was bought.
func (g *Guard) probedSince(b *Breaker) (at time.Time) {
	for name, awaited := range b.probes {
		if m := g.machines[name]; awaited && m != nil && m.At.After(at) {
			at = m.At
		}
	}
	return at
}

// probed are the open breakers that the machine is a probe of, in a fixed order.
func (g *Guard) probed(name string) []*Breaker {
	var out []*Breaker
	for _, b := range g.breakers {
		if _, ok := b.probes[name]; ok && b.Open() {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b *Breaker) int { return compareKeys(a.Key, b.Key) })
	return out
}

// Changed says that something has changed that bears on the keys that match: breakers are probed soon. forced: a user asks for
// it, with the retry annotation.
func (g *Guard) Changed(match func(Key) bool, forced bool, now time.Time) {
	g.changes = append(g.changes, change{now, match})
	g.changes = slices.Clone(g.changes[max(0, len(g.changes)-changesKept):])
	for _, b := range g.breakers {
		if match(b.Key) {
			b.early(now, forced)
		}
	}
}

// Accepted says that the API server would accept a Node that it refused before.
func (g *Guard) Accepted(k Key, now time.Time) {
	// It may refuse the Node itself again, so the pause is cut short no oftener than by other changes.
	if b := g.breakers[k]; b != nil && b.Open() && b.Refused && !b.early(now, false) {
		b.Refused = false
	}
}

// HoldsMachine is the breaker that keeps machines of an image from being bought in a zone; nil: none.
func (g *Guard) HoldsMachine(class, image, zone string) *Breaker {
	return g.covering(MachineKey(class, image, zone))
}

// HoldsPods is the breaker that keeps machines from being bought for a workload in a pool; nil: none. After a fault in one pool
// the first machine in another is a probe, too.
func (g *Guard) HoldsPods(pool string, w Workload, now time.Time) *Breaker {
	k := PodKey(pool, w)
	if b := g.covering(k); b != nil {
		return b
	}
	elsewhere := g.failsElsewhere(k)
	if elsewhere == nil {
		return nil
	}
	b := g.breakers[k]
	if b != nil && b.Open() {
		b.asked = now
		return b // a trial
	}
	t := &Breaker{asked: now, Key: k, Cause: elsewhere.Cause, Message: elsewhere.Message, Since: now, Next: now, Trial: true}
	if b != nil && now.Sub(b.Closed) < memory {
		t.Failed, t.Life, t.Early, t.excuse = b.Failed, b.Life, b.Early, b.excuse
	}
	g.breakers[k] = t
	return t
}

// failsElsewhere is the breaker of another pool because of which the workload is on trial in this one; nil: it isn't, or no more.
func (g *Guard) failsElsewhere(k Key) (found *Breaker) {
	for _, b := range g.breakers {
		if !b.Open() || b.Trial || b.Key.Machine() || b.Key.Pool == k.Pool || !b.failedFor(k.Workload) {
			continue
		}
		if g.served[k].After(b.Since) || g.served[PoolKey(k.Pool, b.Cause)].After(b.Since) {
			continue
		}
		if found == nil || compareKeys(b.Key, found.Key) < 0 {
			found = b
		}
	}
	return found
}

// KnownImage says that a machine of the image was initialized once.
func (g *Guard) KnownImage(class, image string) bool { return g.known[MachineKey(class, image, "")] }

// Know says that a machine of the image was initialized, before anything of this was kept.
func (g *Guard) Know(class, image string) { g.known[MachineKey(class, image, "")] = true }

// Underway is how many machines of an image are bought and not decided. Those that failed count until their round is over: what
// becomes of the others decides whether more are bought.
func (g *Guard) Underway(class, image string) int {
	n := 0
	for _, round := range g.rounds {
		for _, m := range round {
			if !m.served && (m.failed || !m.over) && m.of(MachineKey(class, image, "")) {
				n++
			}
		}
	}
	return n
}

// Doubt is what is known of a key some of whose machines have failed, not yet half of their round, while none has done work and no more
// of them look well than have failed: whoever bought for all of their demand again would buy half of the round twice before the breaker
// opens.
type Doubt struct {
	// Bought and Failed machines of the round, and More that were bought since and are not decided.
	Bought, Failed, More int
}

// Doubts is the key's doubt; nil: there is none.
func (g *Guard) Doubts(k Key) *Doubt {
	for _, round := range g.rounds {
		d := Doubt{}
		var at time.Time
		up, undecided := 0, 0
		for _, m := range round {
			if !m.of(k) {
				continue
			}
			d.Bought++
			at = m.At
			switch {
			case m.failedOf(k):
				d.Failed++
			case m.up(k):
				up++
			}
			if !m.over && !m.served && !m.failed {
				undecided++
			}
		}
		if d.Failed == 0 || undecided == 0 || up > d.Failed || g.served[k].After(at) {
			continue
		}
		for _, m := range g.machines {
			if m.At.After(at) && m.of(k) && !m.served && !m.failed {
				d.More++
			}
		}
		return &d
	}
	return nil
}

// Breakers are all that are open or remembered, in a fixed order.
func (g *Guard) Breakers() []*Breaker {
	return slices.SortedFunc(maps.Values(g.breakers), func(a, b *Breaker) int { return compareKeys(a.Key, b.Key) })
}

// Due are the keys of which a probe may be bought now. Of trials of a pool for the same cause there is one at a time: that which held
// pods back last, because of the others there may be no pods any more.
func (g *Guard) Due(now time.Time) []Key {
	var out []Key
	trial := map[Key]*Breaker{} // by pool and cause
	all := g.Breakers()
	for _, b := range all {
		of := PoolKey(b.Key.Pool, b.Cause)
		if t := trial[of]; b.Trial && (b.Probing() || b.due(now) && g.failsElsewhere(b.Key) != nil) &&
			(t == nil || !t.Probing() && (b.Probing() || b.asked.After(t.asked))) {
			trial[of] = b
		}
	}
	for _, b := range all {
		if b.due(now) && (!b.Trial || trial[PoolKey(b.Key.Pool, b.Cause)] == b) {
			out = append(out, b.Key)
		}
	}
	return out
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
		case b.Open() && k.PoolWide() && b.Probing() && now.Sub(g.probedSince(b)) >= b.pause(b.Failed):
			// Its pod may never run, for a reason of its own: the others don't wait for it for ever. It may still succeed.
			b.leave()
			b.Next = now
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
