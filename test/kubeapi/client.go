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

// Fault is a failure of a call. Its parts happen in the order of its fields.
type Fault struct {
	// Delay passes before anything else.
	Delay time.Duration
	// Call runs while the client waits; it may kill the client, for example.
	Call func()
	// Drop cuts the connection without an answer. As a fault before the call the request never arrives, after it the answer is lost.
	Drop bool
	// Hang is like Drop, but the client notices only by its own timeout, or after this time.
	Hang time.Duration
	// Err is an API error to answer with.
	Err error
}

// Client is one process's connection to the server, an http.RoundTripper. Set its fields before its first use.
type Client struct {
	// Latency returns the delay of a call before it reaches the server; nil: none.
	Latency func() time.Duration
	// Lag returns by how much each event of a watch is delayed; nil: not at all.
	Lag func() time.Duration
	// Before is called with every call before it takes effect, After once it has taken effect, before the answer is sent, with the
	// error that the answer would be. A nil fault lets the call pass. For watches they are called when the watch is opened.
	Before func(*Call) *Fault
	After  func(*Call, error) *Fault

	server *Server
	mu     sync.Mutex
	dead   chan struct{} // closed by Kill
	open   map[*watchBody]bool
}

// Client returns a new connection.
func (s *Server) Client() *Client {
	return &Client{server: s, dead: make(chan struct{}), open: map[*watchBody]bool{}}
}

// Config returns a client configuration that uses the connection.
func (c *Client) Config() *rest.Config {
	return &rest.Config{Host: "http://kubernetes", Transport: c, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}
}

// errCut is the error of a broken connection.
var errCut = &netError{syscall.ECONNRESET}

type netError struct{ error }

func (e *netError) Unwrap() error { return e.error }
func (*netError) Timeout() bool   { return false }
func (*netError) Temporary() bool { return true }

// Kill cuts the connection for good: no request reaches the server any more, and pending ones get no answer.
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

// suffer applies a fault. done reports whether the call is over, with got and err as its result.
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

// wait waits for d, or until the connection is killed. It returns false if the request's context is done first.
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

// keep registers a watch for Kill and Cut, and closes it when its request's context is done.
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
