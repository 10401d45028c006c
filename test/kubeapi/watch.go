package kubeapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one open watch: a response body that never ends by itself. Its queue is unbounded, because the only slow readers are the
// test's own.
type watcher struct {
	table *table
	match selector
	lag   func() time.Duration
	now   func() time.Time

	mu     sync.Mutex
	queue  []frame
	rest   []byte        // the unread part of the current frame
	ready  chan struct{} // holds one element if the queue isn't empty or the watch has ended
	closed error         // the error of reads once the queue is empty
}

type frame struct {
	data []byte
	at   time.Time // not to be read before this time
}

func newWatcher(t *table, match selector, lag func() time.Duration, now func() time.Time) *watcher {
	return &watcher{table: t, match: match, lag: lag, now: now, ready: make(chan struct{}, 1)}
}

// send queues the event in the form in which a watcher with this selector sees it. The caller holds the server's lock.
func (w *watcher) send(e event) {
	was, is := e.before != nil && w.match.matches(e.before), e.after != nil && w.match.matches(e.after)
	switch {
	case is && was:
		w.pushText(watch.Modified, e.text())
	case is:
		w.pushText(watch.Added, e.text())
	case was && e.after != nil: // it no longer matches
		o := e.before.DeepCopy()
		o.SetResourceVersion(e.after.GetResourceVersion())
		w.push(watch.Deleted, o)
	case was:
		w.pushText(watch.Deleted, e.text())
	}
}

// text returns the JSON of the object that most watchers see, encoded once for all of them.
func (e event) text() []byte {
	if *e.written == nil {
		o := e.after
		if o == nil {
			o = e.before
		}
		data, err := json.Marshal(o.Object)
		if err != nil {
			panic(err) // objects came from JSON
		}
		*e.written = data
	}
	return *e.written
}

func (w *watcher) push(kind watch.EventType, o any) {
	if u, ok := o.(*object); ok {
		o = u.Object
	}
	data, err := json.Marshal(o)
	if err != nil {
		panic(err) // objects came from JSON
	}
	w.pushText(kind, data)
}

func (w *watcher) pushText(kind watch.EventType, object []byte) {
	data := slices.Concat([]byte(`{"type":"`+string(kind)+`","object":`), object, []byte("}\n"))
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.now()
	if w.lag != nil {
		at = at.Add(w.lag())
	}
	if n := len(w.queue); n > 0 && at.Before(w.queue[n-1].at) {
		at = w.queue[n-1].at // a late frame delays all that follow
	}
	w.queue = append(w.queue, frame{data, at})
	w.wake()
}

func (w *watcher) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// end ends the watch: with io.EOF as a server does when its time is over, with another error as a broken connection does.
func (w *watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed == nil || w.closed == io.EOF { // frames that are still to come after the end don't keep a broken connection open
		w.closed = err
	}
	w.wake()
}

// Read implements io.Reader.
func (w *watcher) Read(p []byte) (int, error) {
	for {
		w.mu.Lock()
		if len(w.rest) > 0 {
			n := copy(p, w.rest)
			w.rest = w.rest[n:]
			w.mu.Unlock()
			return n, nil
		}
		var wait time.Duration
		switch {
		case w.closed != nil && (w.closed != io.EOF || len(w.queue) == 0):
			err := w.closed
			w.wake()
			w.mu.Unlock()
			return 0, err
		case len(w.queue) > 0:
			if wait = w.queue[0].at.Sub(w.now()); wait <= 0 {
				w.rest, w.queue = w.queue[0].data, w.queue[1:]
				w.mu.Unlock()
				continue
			}
		}
		w.mu.Unlock()
		if wait <= 0 {
			<-w.ready
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-w.ready:
		case <-t.C:
		}
		t.Stop()
	}
}

// Close implements io.Closer.
func (w *watcher) Close() error {
	w.end(io.ErrClosedPipe)
	return nil
}

// watch opens a watch and returns it as a response.
func (s *Server) watch(t *table, call *Call, match selector) (*http.Response, error) {
	o := call.list
	w := newWatcher(t, match, call.lag, s.clock.Now)
	switch {
	case o.SendInitialEvents != nil && *o.SendInitialEvents, o.ResourceVersion == "" || o.ResourceVersion == "0":
		for _, obj := range t.matching(match) {
			w.push(watch.Added, obj)
		}
		if o.SendInitialEvents != nil && *o.SendInitialEvents {
			w.push(watch.Bookmark, map[string]any{
				"kind": call.kind.Kind, "apiVersion": call.kind.GroupVersion().String(),
				"metadata": map[string]any{"resourceVersion": strconv.FormatUint(s.revision, 10), "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"}},
			})
		}
	default:
		from, err := strconv.ParseUint(o.ResourceVersion, 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("resourceVersion: " + err.Error())
		}
		if from < t.expired {
			// As kube-apiserver does: the watch opens and then ends with the error.
			_, status := statusBody(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
			w.push(watch.Error, json.RawMessage(status))
			w.end(io.EOF)
			break
		}
		past, _ := slices.BinarySearchFunc(t.events, from+1, func(e event, v uint64) int { return cmp.Compare(e.revision, v) })
		for _, e := range t.events[past:] {
			w.send(e)
		}
	}
	t.watchers[w] = true
	timeout := 40 * time.Minute
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	over := time.AfterFunc(timeout, func() { w.end(io.EOF) })
	body := &watchBody{watcher: w, done: func() {
		over.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(t.watchers, w)
	}}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json;stream=watch"}}, Body: body}, nil
}

// watchBody unregisters the watch from the server when it is closed.
type watchBody struct {
	*watcher
	once sync.Once
	done func()
}

func (b *watchBody) Close() error {
	b.once.Do(b.done)
	return b.watcher.Close()
}

// Expire drops the past changes of all resources: watches from an older version have to list again.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tables {
		t.events, t.expired = nil, s.revision
	}
}

func statusBody(err error) (int, []byte) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	out := status.Status()
	out.Kind, out.APIVersion = "Status", "v1"
	data, _ := json.Marshal(out)
	return int(out.Code), bytes.TrimSpace(data)
}
