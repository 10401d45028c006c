package ec2

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Fault is a failure of a call. Its parts happen in the order of its fields.
type Fault struct {
	// Delay passes before anything else, on the simulator's clock.
	Delay time.Duration
	// Call runs while the client waits; it may kill the client, for example.
	Call func()
	// Drop cuts the connection without an answer. As a fault before the call the request never arrives, after it the answer is lost.
	Drop bool
	// Code and Message are the error to answer with, Status its HTTP status (default 400, or 503 for RequestLimitExceeded).
	Code    string
	Message string
	Status  int
}

// Answer is the outcome of a call as After hooks see it.
type Answer struct {
	// Results are the IDs of the resources that the call created or used.
	Results []string
	// Err is the error that the client would get, or nil.
	Err error
}

type moment int

const (
	before moment = iota
	afterwards
)

// faults holds the hooks. They are called in the order in which they were added; the first fault applies.
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

// Before calls f with every call of the action ("" means every action, and dry runs, too) before it takes effect. A nil Fault lets the call pass. f runs
// without any lock held, on the call's goroutine. The returned function removes the hook.
func (s *Sim) Before(action string, f func(*Request) *Fault) (remove func()) {
	return s.faults.add(before, action, func(r *Request, _ *Answer) *Fault {
		if action != "" && r.DryRun() {
			return nil
		}
		return f(r)
	})
}

// BeforeDryRun is Before for the dry runs of an action. They are made at a time of their own, and Before tells a test of calls that have effects.
func (s *Sim) BeforeDryRun(action string, f func(*Request) *Fault) (remove func()) {
	return s.faults.add(before, action, func(r *Request, _ *Answer) *Fault {
		if !r.DryRun() {
			return nil
		}
		return f(r)
	})
}

// After calls f with every call of the action once it has taken effect, before the answer is sent.
func (s *Sim) After(action string, f func(*Request, *Answer) *Fault) (remove func()) {
	return s.faults.add(afterwards, action, func(r *Request, a *Answer) *Fault {
		if action != "" && r.DryRun() {
			return nil
		}
		return f(r, a)
	})
}

// Times returns a hook for Before that applies the fault to the first n calls.
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

// fault calls the hooks and applies their fault.
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
