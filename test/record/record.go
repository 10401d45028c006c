package record

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is one write.
type Event struct {
	// Revision orders events of all kinds.
	Revision uint64
	// Type is Added, Modified or Deleted. Objects that existed when the recording began are Added, with the revision of their last
	// write.
	Type watch.EventType
	// Object after the write or, if it was deleted, in its last state. It is shared and must not be changed.
	Object client.Object
	// At is when the recorder received it.
	At time.Time
}

// Recorder records until its context is done.
type Recorder struct {
	reader client.WithWatch
	kinds  []*kind

	mu     sync.Mutex
	events []Event
	failed error
	heard  chan struct{} // closed and replaced with every event
}

// kind is the record of one kind of objects.
type kind struct {
	list client.ObjectList
	// seen is the last revision of every object, gone holds those that were deleted.
	seen map[types.UID]uint64
	gone map[types.UID]bool
}

// Start begins to record the objects of the lists' kinds: the existing ones, and every change from then on.
func Start(ctx context.Context, c client.WithWatch, lists ...client.ObjectList) (*Recorder, error) {
	r := &Recorder{reader: c, heard: make(chan struct{})}
	for _, list := range lists {
		k := &kind{list: list, seen: map[types.UID]uint64{}, gone: map[types.UID]bool{}}
		r.kinds = append(r.kinds, k)
		have := list.DeepCopyObject().(client.ObjectList)
		if err := c.List(ctx, have); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
		if err := meta.EachListItem(have, func(o runtime.Object) error {
			return r.take(k, watch.Event{Type: watch.Added, Object: o})
		}); err != nil {
			return nil, err
		}
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, have.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return c.Watch(ctx, list, &client.ListOptions{Raw: &o})
			},
		})
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", list, err)
		}
		go func() {
			for e := range watcher.ResultChan() {
				if err := r.take(k, e); err != nil {
					r.fail(err)
				}
			}
			if ctx.Err() == nil {
				r.fail(fmt.Errorf("the watch of %T has ended", list))
			}
		}()
	}
	return r, nil
}

func (r *Recorder) take(k *kind, e watch.Event) error {
	switch e.Type {
	case watch.Bookmark:
		return nil
	case watch.Error:
		return fmt.Errorf("watching %T: %w", k.list, apierrors.FromObject(e.Object))
	}
	o, ok := e.Object.(client.Object)
	if !ok {
		return fmt.Errorf("watching %T: a %T came", k.list, e.Object)
	}
	revision, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the resource version of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	o.SetManagedFields(nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, Event{Revision: revision, Type: e.Type, Object: o, At: time.Now()})
	k.seen[o.GetUID()] = revision
	if e.Type == watch.Deleted {
		k.gone[o.GetUID()] = true
	}
	close(r.heard)
	r.heard = make(chan struct{})
	return nil
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = err
		close(r.heard)
		r.heard = make(chan struct{})
	}
}

// Events waits until every change made before the call has been received, and returns all events in the order of their writes.
func (r *Recorder) Events(ctx context.Context) ([]Event, error) {
	for _, k := range r.kinds {
		if err := r.catchUp(ctx, k); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.Revision, b.Revision) })
	return events, nil
}

// catchUp waits until the recording has received the current version of every object, and the deletion of those that no longer exist.
func (r *Recorder) catchUp(ctx context.Context, k *kind) error {
	have := k.list.DeepCopyObject().(client.ObjectList)
	if err := r.reader.List(ctx, have); err != nil {
		return fmt.Errorf("listing %T: %w", k.list, err)
	}
	now := map[types.UID]uint64{}
	listed, err := strconv.ParseUint(have.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the resource version of %T: %w", k.list, err)
	}
	if err := meta.EachListItem(have, func(o runtime.Object) error {
		item := o.(client.Object)
		now[item.GetUID()], err = strconv.ParseUint(item.GetResourceVersion(), 10, 64)
		return err
	}); err != nil {
		return fmt.Errorf("listing %T: %w", k.list, err)
	}
	for {
		r.mu.Lock()
		behind, failed, heard := k.behind(now, listed), r.failed, r.heard
		r.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case !behind:
			return nil
		}
		select {
		case <-heard:
		case <-ctx.Done():
			return fmt.Errorf("waiting for what has happened to %T: %w", k.list, context.Cause(ctx))
		}
	}
}

// behind reports whether a list, made at a revision, contains something that wasn't received yet.
func (k *kind) behind(now map[types.UID]uint64, listed uint64) bool {
	for uid, revision := range now {
		if seen, ok := k.seen[uid]; !ok || seen < revision {
			return true
		}
	}
	for uid, seen := range k.seen {
		if _, ok := now[uid]; !ok && !k.gone[uid] && seen <= listed {
			return true
		}
	}
	return false
}
