package store

import (
	"fmt"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// Reserve counts claims that are about to be written, one after the other, and returns a result for each: nil, or why it exceeds a
// limit or its pool can't be used. The caller holds a reservation until Create has written the claim, or until Release. An error wraps
// capacity.ErrOverLimit, capacity.ErrOverTotal or ErrPoolUnusable.
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
	if err := s.used.Over(one.pool.Limits, c); err != nil {
		return fmt.Errorf("%s: %w", karpenter.NameForUser(one.object), err)
	}
	if err := s.used.OverTotal(c); err != nil {
		return fmt.Errorf("%s: %w", karpenter.NameForUser(one.object), err)
	}
	s.used.Set(c, true)
	return nil
}

// Release undoes the reservation of a claim that won't be written. It ignores claims that were written, and unknown names.
func (s *Store) Release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, reserved := s.used.Counts(name); reserved {
		s.used.Drop(name)
	}
}
