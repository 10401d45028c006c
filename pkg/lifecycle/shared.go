package lifecycle

import (
	"sync"
	"time"
)

const (
	// sharedPoll is how long to wait for an answer that another goroutine has asked for.
	sharedPoll = 500 * time.Millisecond
	// sharedIdle is how long an answer is kept that nothing asks for.
	sharedIdle = 10 * time.Minute
)

// shared is the answer to a question that several goroutines ask, so that it is asked every batchPoll at most. Safe for concurrent use; none waits
// for another. The zero shared has no answer.
type shared[V any] struct {
	mu     sync.Mutex
	busy   bool      // it is being asked
	asked  time.Time // when the answer was asked for; zero: there is none
	answer V
}

// get returns an answer that was asked for at the time since or later, perhaps with ask. If wait is not zero, there is none before that is over.
// The answer is shared and must not be changed.
func (s *shared[V]) get(since, now time.Time, ask func() (V, error)) (answer V, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch again := s.asked.Add(batchPoll).Sub(now); {
	case !s.asked.IsZero() && !s.asked.Before(since):
		return s.answer, 0, nil
	case s.busy:
		return answer, sharedPoll, nil
	case again > 0:
		return answer, again, nil
	}
	s.busy = true
	func() {
		s.mu.Unlock()
		defer func() {
			s.mu.Lock()
			s.busy = false
		}()
		answer, err = ask()
	}()
	if err == nil {
		s.asked, s.answer = now, answer
	}
	return answer, 0, err
}

// idle reports whether nothing has asked for the answer for long.
func (s *shared[V]) idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.busy && now.Sub(s.asked) > sharedIdle
}
