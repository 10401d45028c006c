// Package shared keeps answers of the API server or the cloud that several goroutines need, so that each question is asked once for all of them.
package shared

import (
	"sync"
	"time"
)

const (
	// poll is how long to wait for an answer that another goroutine has asked for.
	poll = 500 * time.Millisecond
	// idleAfter is when an answer that nothing asks for need not be kept any more.
	idleAfter = 10 * time.Minute
)

// Answer keeps the answer to one question to the API server or the cloud for all goroutines that need it, so that the question is asked only once
// in a while. Safe for concurrent use; no caller blocks while another one asks. The zero Answer has no answer yet.
type Answer[V any] struct {
	mu     sync.Mutex
	busy   bool      // a caller is asking the question now
	asked  time.Time // when the question was asked that answer answers; zero: there is no answer
	answer V
}

// Get returns an answer to a question that was asked at the time since or later. If there is none, it calls ask, unless another caller does so now or
// the last answer is younger than every: then wait is the time after which to call Get again, and answer is empty. The answer is shared and must
// not be changed. The error is that of ask.
func (s *Answer[V]) Get(since, now time.Time, every time.Duration, ask func() (V, error)) (answer V, wait time.Duration, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch again := s.asked.Add(every).Sub(now); {
	case !s.asked.IsZero() && !s.asked.Before(since):
		return s.answer, 0, nil
	case s.busy:
		return answer, poll, nil
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

// Idle reports whether nothing has asked for the answer for long.
func (s *Answer[V]) Idle(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.busy && now.Sub(s.asked) > idleAfter
}
