package karpenter

import (
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// usage is what the claims of each pool take, kept up with every claim that comes, changes or goes: pools are looked at for each
// plan, and adding up thousands of claims each time would be seen there.
//
//	reserved (somebody is about to write it) -> known (written) -> gone
//	        \_ released (it won't be written)
//
// It is guarded by the Store's lock, so that a claim counts exactly once on its way and two who reserve at the same time can't
// both have what is left.
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
	// takes counts against limits, has is what launched claims have.
	takes, has capacity.Resources
	claims     int
}

func newUsage() usage { return usage{counted: map[string]counted{}, pools: map[string]*poolUse{}} }

// set counts a claim as it is now.
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

// drop counts a claim no longer.
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

// takes is what counts against a pool's limits. It must not be changed.
func (u *usage) takes(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.takes
	}
	return nil
}

// has is what the launched claims of a pool have. It must not be changed.
func (u *usage) has(pool string) capacity.Resources {
	if p := u.pools[pool]; p != nil {
		return p.has
	}
	return nil
}

// over is the limit that one more claim would pass, or "".
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

// Reserve counts claims that are about to be written, one after the other, and gives an answer for each: nil, or why it can't be
// had. What is reserved is the caller's until Create has written it, or until Release. An error wraps capacity.ErrOverLimit or
// ErrPoolUnusable.
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

// Release gives back what was reserved for a claim that won't be written. One that was written, or that nothing is known of, is left
// alone.
func (s *Store) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used.counted[name].reserved {
		s.used.drop(name)
	}
}
