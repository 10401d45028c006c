package chaos

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
)

// wire is a transport that carries requests to a handler in this process. Once cut, it stays cut.
type wire struct {
	handler http.Handler
	// before and after are called with the action of every request, before and after it is handled; true cuts the connection. Each may
	// be nil.
	before, after func(action string) bool

	mu   sync.Mutex
	dead bool
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dead = true
}

func (w *wire) alive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.dead
}

// RoundTrip implements http.RoundTripper. A request that has reached the handler takes effect even if the wire is cut meanwhile; only
// its answer is lost.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body.Close()
	}
	action := actionOf(r, body)
	if !w.alive() || w.before != nil && w.before(action) || !w.alive() {
		return nil, syscall.ECONNRESET
	}
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	in.RequestURI, in.Host = r.URL.RequestURI(), r.URL.Host
	out := httptest.NewRecorder()
	done := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			if p := recover(); p == http.ErrAbortHandler {
				err = syscall.ECONNRESET
			} else if p != nil {
				panic(p)
			}
			done <- err
		}()
		w.handler.ServeHTTP(out, in)
	}()
	select {
	case err := <-done:
		if err != nil || w.after != nil && w.after(action) || !w.alive() {
			return nil, syscall.ECONNRESET
		}
		got := out.Result()
		got.Request = r
		return got, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// actionOf returns the name of the AWS API action that the request calls.
func actionOf(r *http.Request, body []byte) string {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		return target[strings.LastIndexByte(target, '.')+1:]
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return ""
	}
	return form.Get("Action")
}
