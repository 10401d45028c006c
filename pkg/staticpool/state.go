package staticpool

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// State is what is remembered of static pools, and of the claims that end because their pool has too many. It is the requester of the claims
// of static pools. Safe for concurrent use.
type State struct {
	claims Claims
	clock  clock.PassiveClock

	mu     sync.Mutex
	pools  map[string]*pool
	ending map[string]bool // claims by which static pools exceed their replicas
}

// NewState returns the state of static pools before any was counted.
func NewState(claims Claims, c clock.PassiveClock) *State {
	return &State{claims: claims, clock: c, pools: map[string]*pool{}, ending: map[string]bool{}}
}

// pool is what is remembered of a static pool.
type pool struct {
	Backoff
	said string // why it has fewer nodes than it wants, as last reported
	last answer
}

// count is how many claims of a pool are cached, and how many it is to have.
type count struct{ have, want int64 }

// answer is what the API server has said about a pool's count: although the cached claims aren't as many as it is to have, nothing is to be done. The
// cache may be behind, or another Dovetail's claims, which aren't cached, take the place of replicas. The same count is not asked about again before
// until: a second later at first, and ever later as long as the answer is the same.
type answer struct {
	count
	wait  time.Duration
	until time.Time
}

// Backoff is how long a static pool waits after failures.
type Backoff struct {
	Failed int       // rounds in a row without a node that registered
	Until  time.Time // nothing is launched before
}

// A static pool whose nodes could not be launched, or never registered, gets no other before firstRetry is over, and later each time.
const (
	firstRetry = time.Second
	maxRetry   = 5 * time.Minute
)

// Backoff returns how long the pool waits.
func (s *State) Backoff(pool string) Backoff {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.poolLocked(pool).Backoff
}

// shortage records, once, an event on a static pool about why it has fewer nodes than it wants; empty: it has them, or will.
func (s *State) shortage(pool, why string) {
	s.mu.Lock()
	p := s.poolLocked(pool)
	news := p.said != why
	p.said = why
	s.mu.Unlock()
	if news && why != "" {
		s.claims.TellPool(pool, corev1.EventTypeWarning, "TooFewNodes", objects.OneLine(why))
	}
}

func (s *State) poolLocked(name string) *pool {
	p := s.pools[name]
	if p == nil {
		p = &pool{}
		s.pools[name] = p
	}
	return p
}

// answered reports whether the API server was asked about this count and need not be asked again yet.
func (s *State) answered(pool string, c count) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.poolLocked(pool).last
	return last.count == c && s.clock.Now().Before(last.until)
}

// unanswered forgets what the API server said: something was to be done since.
func (s *State) unanswered(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poolLocked(pool).last = answer{}
}

// answer records that the API server was asked about this count, and nothing is to be done.
func (s *State) answer(pool string, c count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.poolLocked(pool)
	wait := poll
	if p.last.count == c {
		wait = min(max(2*p.last.wait, poll), resync-poll)
	}
	p.last = answer{c, wait, s.clock.Now().Add(wait)}
}

// prune forgets the pools that aren't among these and have no back-off left.
func (s *State) prune(pools map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	maps.DeleteFunc(s.pools, func(name string, p *pool) bool { return !pools[name] && !now.Before(p.Until) })
}

// waitFor launches nothing for a pool before d has passed.
func (s *State) waitFor(pool string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poolLocked(pool).Until = s.clock.Now().Add(d)
}

// recordFailure counts a failed launch for a static pool, once for all that fail together.
func (s *State) recordFailure(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, now := s.poolLocked(pool), s.clock.Now()
	if now.Before(p.Until) {
		return
	}
	p.Failed++
	p.Until = now.Add(min(firstRetry<<min(p.Failed-1, 20), maxRetry))
}

// Needed reports whether the claim's static pool still needs it: the pool may have been scaled down before the claim was written.
func (s *State) Needed(claim string) (yes bool, why string) {
	return !s.Ending(claim), "its NodePool has enough nodes without it"
}

// Failed counts the failure of a claim of a static pool, which is to end.
func (s *State) Failed(_ context.Context, c *capacity.Claim, _, why string) (stays bool) {
	s.recordFailure(c.Pool)
	s.shortage(c.Pool, why)
	s.End(c.Name)
	return false
}

// Registered resets the count of failures when a node of the pool has registered.
func (s *State) Registered(c *capacity.Claim) {
	if c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || !c.Registered {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.poolLocked(c.Pool)
	p.Backoff = Backoff{}
}

// Lost is called for a claim that ends. If it is a static pool's, never registered, and isn't ended by a scale-down, that counts as a
// failure.
func (s *State) Lost(name string) {
	c := s.claims.Current(name)
	if c == nil || c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || c.Registered {
		return
	}
	if !s.Ending(name) {
		s.recordFailure(c.Pool)
	}
}

// Ending reports whether the claim is being ended because its static pool has too many.
func (s *State) Ending(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending[name]
}

// allEnding returns the claims that are being ended because their static pool has too many.
func (s *State) allEnding() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ending)
}

// End records that the claim is being ended because its static pool doesn't need it.
func (s *State) End(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending[name] = true
}

// Forget records that the claim is gone, or isn't being ended after all.
func (s *State) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ending, name)
}
