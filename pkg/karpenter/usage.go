package karpenter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// usage sums up the resources that the claims of each pool use. It is updated with every claim that is added, changed or deleted:
// every plan reads all pools, and adding up thousands of claims each time would slow planning down.
//
//	reserved (about to be written) -> known (written) -> deleted
//	        \_ released (it won't be written)
//
// It is guarded by the Store's lock, so that each claim counts exactly once in every state, and two callers who reserve at the same
// time can't both get what is left.
type usage struct {
	counted map[string]counted // by claim
	pools   map[string]*poolUse
}

// counted is what one claim counts for.
type counted struct {
	pool     string
	takes    capacity.Resources
	launched bool
	reserved bool
}

// poolUse is the sum of a pool's claims.
type poolUse struct {
	// takes counts against limits, has is the capacity of launched claims.
	takes, has capacity.Resources
	claims     int
}

func newUsage() usage { return usage{counted: map[string]counted{}, pools: map[string]*poolUse{}} }

// set counts a claim as it is now, instead of what it counted for before.
func (u *usage) set(c *capacity.Claim, reserved bool) {
	u.drop(c.Name)
	one := counted{c.Pool, c.Takes(), c.Launched, reserved}
	u.counted[c.Name] = one
	p := u.pools[c.Pool]
	if p == nil {
		p = &poolUse{takes: capacity.Resources{}, has: capacity.Resources{}}
		u.pools[c.Pool] = p
	}
	p.claims++
	p.takes.Add(one.takes, 1)
	if one.launched {
		p.has.Add(one.takes, 1)
	}
}

// drop stops counting a claim.
func (u *usage) drop(name string) {
	one, ok := u.counted[name]
	if !ok {
		return
	}
	delete(u.counted, name)
	p := u.pools[one.pool]
	if p.claims--; p.claims == 0 {
		delete(u.pools, one.pool)
		return
	}
	p.takes.Sub(one.takes)
	if one.launched {
		p.has.Sub(one.takes)
	}
}

// takes returns what counts against a pool's limits. It must not be changed.
func (u *usage) takes(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.takes
	}
	return nil
}

// has returns the capacity of a pool's launched claims. It must not be changed.
func (u *usage) has(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.has
	}
	return nil
}

// over describes the limit that one more claim would exceed, or returns "".
func (u *usage) over(limits capacity.Resources, c *capacity.Claim) string {
	used := u.takes(c.Pool)
	asks := c.Takes()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		if asks[name] > 0 && used[name]+asks[name] > limits[name] {
			amount := func(v int64) string { q := capacity.Resources{name: v}.List()[name]; return q.String() }
			return fmt.Sprintf("limit of %s %s reached: %s left, up to %s needed", name, amount(limits[name]), amount(max(0, limits[name]-used[name])), amount(asks[name]))
		}
	}
	return ""
}

// Reserve counts claims that are about to be written, one after the other, and returns a result for each: nil, or why it exceeds a
// limit or its pool can't be used. The caller holds a reservation until Create has written the claim, or until Release. An error wraps
// capacity.ErrOverLimit or ErrPoolUnusable.
func (s *Store) Reserve(claims ...*capacity.Claim) []error {
	out := make([]error, len(claims))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range claims {
		out[i] = s.reserve(c)
	}
	return out
}

func (s *Store) reserve(c *capacity.Claim) error {
	one := s.parsed[c.Pool]
	if one == nil {
		return fmt.Errorf("NodePool %s: %w: there is none", c.Pool, ErrPoolUnusable)
	}
	if why := s.used.over(one.pool.Limits, c); why != "" {
		return fmt.Errorf("%s: %w: %s", called(one.object), capacity.ErrOverLimit, why)
	}
	s.used.set(c, true)
	return nil
}

// Release undoes the reservation of a claim that won't be written. It ignores claims that were written, and unknown names.
func (s *Store) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used.counted[name].reserved {
		s.used.drop(name)
	}
}
