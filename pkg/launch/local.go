package launch

import (
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What Launcher knows about claims beyond the cache of the intent log: those that are being written, and reservations that are being recorded.
// A claim that the log has lost is forgotten for good. A late answer about it doesn't bring it back, or it would count against its pool's
// limits for ever.

// remember stores a claim that is about to be written.
func (m *Launcher) remember(c *capacity.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.local[c.Name] = c
}

// keep stores the new state of a claim that was written. The caller must not use c afterwards.
func (m *Launcher) keep(c *capacity.Claim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.claims.Claim(c.Name) == nil {
		delete(m.local, c.Name)
		m.claims.Release(c.Name)
		return
	}
	if old := m.local[c.Name]; old != nil {
		c.Slots = union(c.Slots, old.Slots)
	}
	m.local[c.Name] = c
}

// promise adds to the reservations that are to be recorded on a claim. It returns false when the claim is gone.
func (m *Launcher) promise(name string, slots []capacity.Slot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claimLocked(name)
	if c == nil {
		return false
	}
	cp := *c
	cp.Slots = union(slots, c.Slots)
	m.local[name] = &cp
	return true
}

func (m *Launcher) forget(name string) {
	m.spending.overClaim(name, false) // no verdict so far: it never had an instance
	m.mu.Lock()
	defer m.mu.Unlock()
	pool := ""
	if c := m.claimLocked(name); c != nil {
		pool = c.Pool
	}
	delete(m.local, name)
	m.claims.Release(name)
	delete(m.orders, name)
	delete(m.ending, name)
	if pool != "" && m.claims.Claim(name) == nil {
		m.relief.claimEnded(pool)
	}
}

// claim returns what is known about a claim, or nil.
func (m *Launcher) claim(name string) *capacity.Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claimLocked(name)
}

func (m *Launcher) claimLocked(name string) *capacity.Claim {
	return join(m.claims.Claim(name), m.local[name])
}

// allClaims returns, by name, the cached claims merged with those that only Launcher knows yet.
func (m *Launcher) allClaims() map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	for _, c := range m.claims.Claims() {
		out[c.Name] = c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, c := range m.local {
		out[name] = join(out[name], c)
	}
	return out
}

// join returns a claim as the log shows it, with the slots that are known locally; either may be nil.
func join(shown, local *capacity.Claim) *capacity.Claim {
	switch {
	case local == nil:
		return shown
	case shown == nil:
		return local
	}
	merged := *shown
	merged.Slots = local.Slots
	return &merged
}

// lives reports whether the claim still exists and isn't being deleted. A name that a user chose may be used again, so the UID has to
// match.
func (m *Launcher) lives(c *capacity.Claim) bool {
	now := m.claim(c.Name)
	return now != nil && !now.Deleting && now.UID == c.UID
}

// union returns a with those slots of b that a doesn't have. A slot is identified by its Order: which pod of its class it names depends on
// which pod arrives first, and may change.
func union(a, b []capacity.Slot) []capacity.Slot {
	have := map[int]bool{}
	for _, s := range a {
		have[s.Order] = true
	}
	out := append([]capacity.Slot(nil), a...)
	for _, s := range b {
		if !have[s.Order] {
			out = append(out, s)
		}
	}
	return out
}
