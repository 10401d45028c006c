package launch

import (
	"maps"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// claimCache is the intent log with what this process knows beyond the log's cache: claims that are being written, and reservations that are
// being recorded. A claim that the log has lost is forgotten for good. A late answer about it doesn't bring it back, or it would count
// against its pool's limits for ever. Safe for concurrent use.
type claimCache struct {
	ClaimLog
	mu    sync.Mutex
	local map[string]*capacity.Claim // by name; a claim in it is never changed, only replaced by a changed copy
}

// remember stores a claim that is about to be written.
func (cl *claimCache) remember(c *capacity.Claim) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.local[c.Name] = c
}

// keep stores the new state of a claim that was written. The caller must not use c afterwards.
func (cl *claimCache) keep(c *capacity.Claim) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.ClaimLog.Claim(c.Name) == nil {
		delete(cl.local, c.Name)
		cl.ClaimLog.Release(c.Name)
		return
	}
	if old := cl.local[c.Name]; old != nil {
		c.Slots = union(c.Slots, old.Slots)
	}
	cl.local[c.Name] = c
}

// promise adds slots to the reservations that are to be recorded on a claim. It returns false when the claim is gone.
func (cl *claimCache) promise(name string, slots []capacity.Slot) bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	c := cl.claimLocked(name)
	if c == nil {
		return false
	}
	cp := *c
	cp.Slots = union(slots, c.Slots)
	cl.local[name] = &cp
	return true
}

// Current returns what is known about a claim, or nil.
func (cl *claimCache) Current(name string) *capacity.Claim {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.claimLocked(name)
}

func (cl *claimCache) claimLocked(name string) *capacity.Claim {
	return join(cl.ClaimLog.Claim(name), cl.local[name])
}

// All returns, by name, the cached claims merged with those that only this process knows yet.
func (cl *claimCache) All() map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	for _, c := range cl.ClaimLog.Claims() {
		out[c.Name] = c
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for name, c := range cl.local {
		out[name] = join(out[name], c)
	}
	return out
}

// Known returns the claims that this process has written or is about to write, by name.
func (cl *claimCache) Known() map[string]*capacity.Claim {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return maps.Clone(cl.local)
}

// forget drops what is known beyond the log's cache about a claim that is gone, or won't be written. It returns the pool whose limits the
// claim no longer counts against, or "".
func (cl *claimCache) forget(name string) (pool string) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if c := cl.claimLocked(name); c != nil && cl.ClaimLog.Claim(name) == nil {
		pool = c.Pool
	}
	delete(cl.local, name)
	cl.ClaimLog.Release(name)
	return pool
}

// join returns the claim that ClaimLog shows, with the reservations (Slots) that are known locally. Either may be nil.
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
func (cl *claimCache) lives(c *capacity.Claim) bool {
	now := cl.Current(c.Name)
	return now != nil && !now.Deleting && now.UID == c.UID
}

// union returns a with those slots of b that a doesn't have. Two slots are the same if they have the same place in plan order (Order). The pod
// that a slot names doesn't identify it: it depends on which pod of the class arrives first, and may change.
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
