package guard

import (
	"maps"
	"slices"
	"time"
)

// HoldsMachine returns the open breaker that stops machines of an image in a zone, or nil.
func (g *Guard) HoldsMachine(class, image, zone string) *Breaker {
	return g.covering(MachineKey(class, image, zone))
}

// HoldsPods returns the open breaker that stops machines for a workload in a pool, or nil. If the workload fails in another pool, the
// first machine in this one is a probe, too.
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
		return b // its Trial is set: otherwise covering had found it
	}
	t := &Breaker{asked: now, Key: k, Cause: elsewhere.Cause, Message: elsewhere.Message, Since: now, Next: now, Trial: true}
	if b != nil && now.Sub(b.Closed) < memory {
		t.Failed, t.Life, t.Early, t.excuse = b.Failed, b.Life, b.Early, b.excuse
	}
	g.breakers[k] = t
	return t
}

// failsElsewhere returns the breaker of another pool because of which machines for the workload are only tried in this pool (Breaker.Trial), or nil.
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

// KnownImage reports whether a machine of the image was initialized at least once.
func (g *Guard) KnownImage(class, image string) bool {
	_, known := g.known[MachineKey(class, image, "")]
	return known
}

// Know records that a machine of the image was initialized before the guard kept records.
func (g *Guard) Know(class, image string) {
	if k := MachineKey(class, image, ""); !g.KnownImage(class, image) {
		g.known[k] = time.Time{}
	}
}

// Underway returns how many machines of an image are bought and undecided, and when the first of them was bought. Failed machines count
// until their round is over: the verdicts on the others of the round decide whether more are bought. A machine whose node is Ready counts
// for its own workloads only; for other workloads it shows that the image works.
func (g *Guard) Underway(class, image string, workloads []Workload) (n int, since time.Time) {
	own := func(w Workload) bool { return slices.Contains(workloads, w) }
	for _, round := range g.rounds {
		for _, m := range round {
			if !m.served && (m.failed || !m.over) && m.of(MachineKey(class, image, "")) && (!m.ready || m.broken || slices.ContainsFunc(m.Workloads, own)) {
				n++
				if since.IsZero() || m.At.Before(since) {
					since = m.At
				}
			}
		}
	}
	return n, since
}

// Doubt describes a key for which some machines of a round have failed, but fewer than half, while none has served. Those that look well so
// far are at most as many as those that have failed. If machines were bought again for all the pods concerned, half of the round would be
// bought twice before the breaker opens.
type Doubt struct {
	// Bought and Failed count machines of the round, More counts undecided ones that were bought since.
	Bought, Failed, More int
	// Since is when the first of them failed.
	Since time.Time
}

// Doubts returns the key's doubt, or nil.
func (g *Guard) Doubts(k Key) *Doubt {
	for _, name := range slices.Sorted(maps.Keys(g.failing)) {
		round := g.rounds[name]
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
				if d.Since.IsZero() || m.failedAt.Before(d.Since) {
					d.Since = m.failedAt
				}
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

// Breakers returns all breakers, open or remembered, in a fixed order.
func (g *Guard) Breakers() []*Breaker {
	return slices.SortedFunc(maps.Values(g.breakers), func(a, b *Breaker) int { return compareKeys(a.Key, b.Key) })
}

// Due returns the keys of which a probe may be bought now. Of a pool's breakers with Trial and the same cause only one is due at a time: the one
// that has made pods wait most recently, because there may be no pods for the others any more. skip reports that no probe of a key could be
// launched of late: then another of them is due.
func (g *Guard) Due(now time.Time, skip func(Key) bool) []Key {
	if skip == nil {
		skip = func(Key) bool { return false }
	}
	var out []Key
	trial := map[Key]*Breaker{} // by pool and cause
	all := g.Breakers()
	for _, b := range all {
		of := PoolKey(b.Key.Pool, b.Cause)
		probing := b.Probing() && now.Sub(g.probedSince(b)) < b.pause(b.Failed) // others don't wait for longer
		if t := trial[of]; b.Trial && (probing || b.due(now) && !skip(b.Key) && g.failsElsewhere(b.Key) != nil) &&
			(t == nil || !t.Probing() && (probing || b.asked.After(t.asked))) {
			trial[of] = b
		}
	}
	for _, b := range all {
		if b.due(now) && !b.Key.Repair() && !skip(b.Key) && (!b.Trial || trial[PoolKey(b.Key.Pool, b.Cause)] == b) {
			out = append(out, b.Key)
		}
	}
	return out
}
