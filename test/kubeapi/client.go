package kubeapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Fault is something that goes wrong with a call. Its parts happen in the order of its members.
type Fault struct {
	// Delay before anything else.
	Delay time.Duration
	// Call is run while the client waits: the place to kill the client.
	Call func()
	// Drop cuts the connection without an answer. Before the call that means "never arrived", after it "answer lost".
	Drop bool
	// Hang is like Drop, but the client finds out by its own patience only (or this).
	Hang time.Duration
	// Err is answered: an API error.
	Err error
}

// Client is one process's connection to the server, an http.RoundTripper. Set its members before its first use.
type Client struct {
	// Latency of each call, before it arrives; nil: none.
	Latency func() time.Duration
	// Lag is how late each event of a watch is; nil: not at all.
	Lag func() time.Duration
	// Before is asked about every call before it has any effect, After when it had its effect and the answer is on its way,
	// with the error that is about to be answered. Nil faults let it pass. Watches are asked about when they are opened.
	Before func(*Call) *Fault
	After  func(*Call, error) *Fault

	server *Server
	mu     sync.Mutex
	dead   chan struct{} // closed by Kill
	open   map[*watchBody]bool
}

// Client makes a connection.
func (s *Server) Client() *Client {
	return &Client{server: s, dead: make(chan struct{}), open: map[*watchBody]bool{}}
}

// Config is a client configuration that uses the connection.
func (c *Client) Config() *rest.Config {
	return &rest.Config{Host: "http://kubernetes", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// errCut is how a connection that breaks looks.
var errCut = &netError{syscall.ECONNRESET}

type netError struct{ error }

func (e *netError) Unwrap() error { return e.error }
func (*netError) Timeout() bool   { return false }
func (*netError) Temporary() bool { return true }

// Kill cuts the connection for good: nothing arrives any more, and no answer to what is under way.
func (c *Client) Kill() {
	c.mu.Lock()
	if !c.killed() {
		close(c.dead)
	}
	c.mu.Unlock()
	c.Cut()
}

// Cut ends all open watches as a broken connection does.
func (c *Client) Cut() {
	c.mu.Lock()
	open := c.open
	c.open = map[*watchBody]bool{}
	c.mu.Unlock()
	for b := range open {
		b.end(errCut)
	}
}

func (c *Client) killed() bool {
	select {
	case <-c.dead:
		return true
	default:
		return false
	}
}

// RoundTrip implements http.RoundTripper.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	if c.killed() {
		return nil, errCut
	}
	call, ok, err := c.server.parse(r)
	if err != nil {
		return answer(r, nil, err), nil
	}
	if !ok {
		got, err := other(r.URL.Path)
		return answer(r, got, err), nil
	}
	call.lag = c.Lag
	if c.Latency != nil && !c.wait(r, c.Latency()) {
		return nil, r.Context().Err()
	}
	if c.Before != nil {
		if done, got, err := c.suffer(r, c.Before(call)); done {
			return got, err
		}
	}
	if c.killed() {
		return nil, errCut
	}
	got, err := c.server.serve(call)
	if got != nil {
		c.keep(r, got)
	}
	if c.After != nil {
		if done, instead, err := c.suffer(r, c.After(call, err)); done {
			if got != nil {
				got.Body.Close()
			}
			return instead, err
		}
	}
	if c.killed() {
		if got != nil {
			got.Body.Close()
		}
		return nil, errCut
	}
	return answer(r, got, err), nil
}

// suffer lets a fault happen; done: there is nothing else to answer.
func (c *Client) suffer(r *http.Request, f *Fault) (done bool, got *http.Response, err error) {
	if f == nil {
		return false, nil, nil
	}
	if !c.wait(r, f.Delay) {
		return true, nil, r.Context().Err()
	}
	if f.Call != nil {
		f.Call()
	}
	switch {
	case f.Drop, c.killed():
		return true, nil, errCut
	case f.Hang > 0:
		c.wait(r, f.Hang)
		return true, nil, errors.Join(errCut, r.Context().Err())
	case f.Err != nil:
		return true, answer(r, nil, f.Err), nil
	}
	return false, nil, nil
}

// wait lets time pass, until the connection is killed at most. It is false when the request's own time is over.
func (c *Client) wait(r *http.Request, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.dead:
		return true
	case <-r.Context().Done():
		return false
	}
}

// keep remembers a watch, for Kill and Cut, and ends it with its request.
func (c *Client) keep(r *http.Request, got *http.Response) {
	b, ok := got.Body.(*watchBody)
	if !ok {
		return
	}
	c.mu.Lock()
	c.open[b] = true
	c.mu.Unlock()
	leave := b.done
	stop := context.AfterFunc(r.Context(), func() { b.end(r.Context().Err()) })
	b.done = func() {
		stop()
		leave()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, b)
	}
}

func answer(r *http.Request, got *http.Response, err error) *http.Response {
	if err != nil {
		code, body := statusBody(err)
		got = response(code, body)
	}
	got.Request, got.Proto, got.ProtoMajor, got.ProtoMinor = r, "HTTP/1.1", 1, 1
	got.Status = http.StatusText(got.StatusCode)
	return got
}

var _ io.ReadCloser = &watchBody{}
