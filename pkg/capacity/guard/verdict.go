package guard

import (
	"slices"
	"time"
)

// Ready records that the machine's node has been Ready. It may still lack what users have declared for it, such as devices.
func (g *Guard) Ready(name string) {
	if m := g.machines[name]; m != nil {
		m.ready = true
	}
}

// Initialized records when the machine's node became initialized.
func (g *Guard) Initialized(name string, at time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	m.initialized = at
	g.latest(g.initialized, MachineKey(m.Class, m.image, m.zone), at)
	g.latest(g.initialized, MachineKey(m.Class, m.image, ""), at)
	if m.image == "" {
		return
	}
	k := MachineKey(m.Class, m.image, "")
	if !g.KnownImage(m.Class, m.image) {
		g.out = append(g.out, Notice{Kind: Known, Key: k})
		g.known[k] = at
	}
	g.latest(g.known, k, at)
}

// Ran records that a pod of the workload is Running on the machine. With that alone it has not served yet.
func (g *Guard) Ran(name string, w Workload) {
	if m := g.machines[name]; m != nil && !slices.Contains(m.ran, w) {
		m.ran = append(m.ran, w)
	}
}

// Steady records that the node has been initialized long enough to trust it. That proves that the image works. It also means that the
// machine has served, if it was bought for no pod, or as a replacement whose pods have not moved yet.
func (g *Guard) Steady(name string, now time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	switch {
	case !m.forPods():
		g.Serve(name, Workload{}, now)
	case m.Moves && !m.failed && len(m.ran) == 0:
		g.serve(m, now) // it is there for pods that have not moved yet, so this tells nothing about them
	}
	for _, b := range g.probed(name) {
		if b.Key.Machine() {
			g.close(b, now, m.of)
		}
	}
	at := now
	if !m.initialized.IsZero() {
		at = m.initialized // a process that has just started learns of old machines
	}
	g.latest(g.served, MachineKey(m.Class, m.image, ""), at)
	g.latest(g.served, MachineKey(m.Class, m.image, m.zone), at)
}

// Serve records that the machine has served a workload. The zero workload stands for all workloads that the machine was bought for; NoPod stands for
// a workload that isn't known any more, and closes no workload's breaker. Only the first call for a workload sets when the workload was last served:
// what its pods do later on an old machine tells nothing about new machines.
func (g *Guard) Serve(name string, w Workload, now time.Time) {
	m := g.machines[name]
	if m == nil {
		return
	}
	g.serve(m, now)
	worked := []Workload{w}
	switch w {
	case Workload{}:
		worked = m.Workloads
	case NoPod: // only an earlier process knew which workload was served; on a replacement it may be none of those whose pods are to move there
		if !m.Moves {
			worked = append(worked, m.Workloads...)
		}
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

func (g *Guard) serve(m *machine, now time.Time) {
	if m.served {
		return
	}
	m.served = true
	for _, k := range []Key{MachineKey(m.Class, m.image, ""), MachineKey(m.Class, m.image, m.zone), PoolKey(m.Pool, "")} {
		g.latest(g.served, k, now)
	}
}

func (g *Guard) latest(of map[Key]time.Time, k Key, at time.Time) {
	if at.After(of[k]) {
		of[k] = at
	}
}

// Served reports whether the machine has served; after that nothing makes it a failure.
func (g *Guard) Served(name string) bool { return g.machines[name] != nil && g.machines[name].served }

// Decided reports whether the machine has its verdict, or isn't known to the guard.
func (g *Guard) Decided(name string) bool {
	m := g.machines[name]
	return m == nil || m.served || m.failed
}

// Fail records that the machine ended, or that its pods were thrown off it, before it served. Pods may be thrown off one by one: each
// call counts for workloads that the machine has not failed for yet. A machine that has served doesn't fail any more, but it is a failed
// probe for the breakers of workloads whose pods were thrown off it (f.Workloads), and it opens breakers for pods that could never use it (f.Waited).
func (g *Guard) Fail(name string, f Fault, now time.Time) {
	m := g.machines[name]
	if m == nil || m.broken || f.Machine && (m.failed || m.served) || m.served && len(f.Workloads) == 0 {
		return
	}
	keys := m.keys(&f, g.narrow)
	if f.Overtaken {
		f.Chance = mostOvertaken
		keys = g.loseOvertaken(name, keys, now)
	}
	keys = slices.DeleteFunc(keys, func(k Key) bool {
		return slices.Contains(m.faults, k) || f.Chance > 0 && g.forgives(k, m.Round, f.Chance, now)
	})
	if len(keys) == 0 && f.Chance > 0 {
		return
	}
	f.Message = "NodeClaim " + name + ": " + f.Message
	m.failed, m.broken = m.failed || !m.served, f.Machine
	g.failing[m.Round] = true
	if m.failedAt.IsZero() {
		m.failedAt = now
	}
	m.faults = append(m.faults, keys...)
	life := min(now.Sub(m.At), maxPause)
	for _, b := range g.probed(name) {
		// A probe that failed for another reason tells nothing about this breaker. It may still do so while it lives (End).
		if slices.ContainsFunc(keys, b.Key.includes) || b.Key.Machine() && f.Machine {
			g.failProbe(b, name, &f, life, now)
		}
	}
	if m.served && !f.Waited {
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

// loseOvertaken ends, without a verdict, the machine's probes of breakers that include one of the keys, and returns the keys that no
// breaker stops.
func (g *Guard) loseOvertaken(name string, keys []Key, now time.Time) []Key {
	for _, b := range g.probed(name) {
		if slices.ContainsFunc(keys, b.Key.includes) {
			g.lose(b, name, now)
		}
	}
	return slices.DeleteFunc(keys, func(k Key) bool { return g.covering(k) != nil })
}

// forgives reports whether a failure that may be chance is ignored. Within an hour up to most rounds are forgiven, if the key's breaker was
// not open within the last day. With more failures than that, the next machines would probably fail, too.
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

// failProbe records that a probe has failed.
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

// narrow returns the key of a machine fault: that of the zone, if machines of the image became initialized in another zone at most an
// hour before this one was bought; also while the zone's breaker is open, because its probes tell nothing about zones where nothing was
// tried.
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

// Throw records that a pod was thrown off the machine of the NodeClaim name soon after the machine was bought, whether or not the machine had
// served. desired is how many pods the workload's controller wants. More than twice desired within an hour open the workload's breaker; if the
// breaker was open within the last day, half of desired since it closed do so.
func (g *Guard) Throw(name, pool string, w Workload, desired int, f Fault, now time.Time) {
	k := PodKey(pool, w)
	g.thrown[k] = append(slices.DeleteFunc(g.thrown[k], func(t throw) bool { return now.Sub(t.at) >= thrownWindow }), throw{now, f.Cause})
	if b := g.covering(k); b != nil {
		b.join(w)
		if m := g.machines[name]; m != nil && m.served {
			if _, probe := b.probes[name]; probe {
				g.failProbe(b, name, &f, min(now.Sub(m.At), maxPause), now) // the machine serves others, not this workload
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
	if b := g.breakers[PoolKey(pool, f.Cause)]; b != nil && !b.Open() && now.Sub(b.Closed) < memory && g.workloadsThrown(pool, f.Cause, b.Closed) >= poolBreakers {
		g.open(b.Key, f, b.Life, now)
	}
	g.merge(pool, f.Cause, now)
}

// workloadsThrown returns how many workloads had pods thrown off machines of the pool for the cause since then.
func (g *Guard) workloadsThrown(pool, cause string, since time.Time) int {
	n := 0
	for k, all := range g.thrown {
		if k.Pool == pool && slices.ContainsFunc(all, func(t throw) bool { return t.at.After(since) && t.cause == cause }) {
			n++
		}
	}
	return n
}

// End records that the machine is gone, or that nothing more will be reported about it.
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
		delete(g.failing, m.Round)
	}
}

// lose ends a probe of the breaker without a verdict.
func (g *Guard) lose(b *Breaker, name string, now time.Time) {
	awaited := b.probes[name]
	delete(b.probes, name)
	if !awaited {
		return
	}
	// Each lost probe may have a harmless cause, but one after the other they would cost a machine a minute.
	if b.lost++; b.lost >= mostLost {
		b.fail(now)
		g.note(Paused, b)
		return
	}
	if next := now.Add(lostProbe); b.Next.Before(next) {
		b.Next = next
	}
}
