package guard

import (
	"slices"
	"time"
)

// covering returns the open breaker that stops all that the key stands for, or nil. A breaker with Trial set isn't returned.
func (g *Guard) covering(k Key) *Breaker {
	if b := g.breakers[k]; b != nil && b.Open() && !b.Trial {
		return b
	}
	var found *Breaker
	for _, b := range g.breakers {
		if b.Open() && !b.Trial && b.Key.includes(k) && (found == nil || compareKeys(b.Key, found.Key) < 0) {
			found = b
		}
	}
	return found
}

// open opens a breaker. If it closed within the last day, its pauses go on growing from the last one.
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
		if o != b && o.Open() && k.includes(o.Key) && !o.Key.Repair() { // a breaker of launches doesn't stop repairs
			g.absorb(b, o)
		}
	}
	if again {
		b.fail(now)
	}
	g.note(Opened, b)
}

// absorb replaces the breaker o by b, which includes it. o's pauses don't apply to the rest of what b stops; o keeps them for when b
// closes.
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

// merge replaces the breakers of a pool that are open for the same cause by one breaker of the pool, if there are at least poolBreakers.
// Breakers that opened before a machine of the pool last served don't count.
func (g *Guard) merge(pool, cause string, now time.Time) {
	if pool == "" {
		return // users' NodeClaims without a pool have nothing in common
	}
	var same []*Breaker
	served := g.served[PoolKey(pool, "")]
	for _, b := range g.Breakers() {
		if b.Open() && !b.Trial && !b.Key.Repair() && !b.Key.Machine() && !b.Key.PoolWide() && b.Key.Pool == pool && b.Cause == cause && !served.After(b.Since) {
			same = append(same, b)
		}
	}
	if len(same) < poolBreakers {
		return
	}
	first := slices.MinFunc(same, func(a, b *Breaker) int { return a.Since.Compare(b.Since) })
	g.open(PoolKey(pool, cause), Fault{Cause: cause, Message: first.Message}, first.Life, now)
}

// excused reports whether a failure is forgiven because the machine was bought before a change that concerns the key. One change forgives
// the failures of all machines bought before it; the next change that does so is an hour later.
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
		b = &Breaker{Key: k, Since: now, Closed: now.Add(-memory)} // only remembers the excuse
		g.breakers[k] = b
	}
	b.excuse = g.changes[i].at
	return true
}

// close records that a probe has succeeded. Breakers that b has replaced, and those of workloads and zones that have failed since, close,
// too, if something has changed or the probe proves that they work; the others open again, and their probes are due.
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
		if !o.Open() {
			o.Since = now
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

// probedSince returns when the latest probe that the breaker waits for was bought.
func (g *Guard) probedSince(b *Breaker) (at time.Time) {
	for name, awaited := range b.probes {
		if m := g.machines[name]; awaited && m != nil && m.At.After(at) {
			at = m.At
		}
	}
	return at
}

// probed returns the open breakers that the machine is a probe of, in a fixed order.
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

// Changed records a change that concerns the keys that match: their breakers are probed soon. forced: a user asks for it with the retry
// annotation.
func (g *Guard) Changed(match func(Key) bool, forced bool, now time.Time) {
	g.changes = append(g.changes, change{now, match})
	g.changes = slices.Clone(g.changes[max(0, len(g.changes)-changesKept):])
	for _, b := range g.breakers {
		if match(b.Key) {
			b.early(now, forced)
		}
	}
}

// Accepted records that the API server would accept a Node that it refused before.
func (g *Guard) Accepted(k Key, now time.Time) {
	// It may still refuse the real Node, so this shortens the pause no more often than other changes do.
	if b := g.breakers[k]; b != nil && b.Open() && b.Refused && !b.early(now, false) {
		b.Refused = false
	}
}
