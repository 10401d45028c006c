package ec2

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is something that goes wrong with a call. Its parts happen in the order of its members.
type Fault struct {
	// Delay before anything else, on the simulator's clock.
	Delay time.Duration
	// Call is run while the client waits: the place to kill the client.
	Call func()
	// Drop cuts the connection without an answer. Before the call that means "never arrived", after it "answer lost".
	Drop bool
	// Code and Message are answered as an error, with HTTP status Status (default 400, or 503 for RequestLimitExceeded).
	Code    string
	Message string
	Status  int
}

// Answer is the outcome of a call as After hooks see it.
type Answer struct {
	// Results are the ids of what the call made or touched.
	Results []string
	// Err is the error the client is going to get, or nil.
	Err error
}

type moment int

const (
	before moment = iota
	afterwards
)

// faults are the hooks. Hooks are asked in the order they were added; the first fault counts.
type faults struct {
	mu    sync.Mutex
	next  int
	hooks []hook
}

type hook struct {
	id     int
	when   moment
	action string
	ask    func(*Request, *Answer) *Fault
}

// Before asks f about every call of the action ("" means every action) before it has any effect. A nil Fault lets it pass.
// f runs outside all locks, on the call's goroutine. The returned function removes the hook.
func (s *Sim) Before(action string, f func(*Request) *Fault) (remove func()) {
	return s.faults.add(before, action, func(r *Request, _ *Answer) *Fault { return f(r) })
}

// After asks f about every call of the action after its effect and before its answer.
func (s *Sim) After(action string, f func(*Request, *Answer) *Fault) (remove func()) {
	return s.faults.add(afterwards, action, f)
}

// Times gives the fault to the first n calls it is asked about, for use with Before.
func Times(n int, fault Fault) func(*Request) *Fault {
	var asked atomic.Int64
	return func(*Request) *Fault {
		if asked.Add(1) > int64(n) {
			return nil
		}
		return &fault
	}
}

func (f *faults) add(when moment, action string, ask func(*Request, *Answer) *Fault) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next++
	id := f.next
	f.hooks = append(f.hooks, hook{id, when, action, ask})
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.hooks = slices.DeleteFunc(slices.Clone(f.hooks), func(h hook) bool { return h.id == id })
	}
}

// fault asks the hooks and lets the fault happen.
func (s *Sim) fault(ctx context.Context, when moment, r *Request, outcome error) (lost bool, err error) {
	s.faults.mu.Lock()
	hooks := s.faults.hooks
	s.faults.mu.Unlock()
	for _, h := range hooks {
		if h.when != when || h.action != "" && h.action != r.Action {
			continue
		}
		f := h.ask(r, &Answer{Results: r.results, Err: outcome})
		if f == nil {
			continue
		}
		if !s.sleep(ctx, f.Delay) {
			return true, nil
		}
		if f.Call != nil {
			f.Call()
		}
		if f.Drop {
			return true, nil
		}
		if f.Code != "" {
			return false, f.apiError()
		}
		return false, nil
	}
	return false, nil
}

func (f *Fault) apiError() *apiError {
	e := &apiError{Code: f.Code, Message: f.Message, Status: f.Status}
	if e.Status == 0 && f.Code == "RequestLimitExceeded" {
		e.Status = http.StatusServiceUnavailable
	}
	if e.Message == "" {
		e.Message = "Injected fault."
	}
	return e
}
