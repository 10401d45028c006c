package view

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

const (
	// boundEvery is how often the bound is worked out again, which is much more work than the rest.
	boundEvery = time.Minute
	// mostOfTime: reading takes one part in so many of the time at most.
	mostOfTime = 10
)

// Look reads the cluster. notes say what the numbers count with.
type Look func(context.Context) (c *explain.Cluster, notes []string, err error)

// Feed looks at a cluster again and again and keeps the latest model.
type Feed struct {
	look     Look
	interval time.Duration
	clock    clock.Clock
	// planning holds one token: plans on the latest cluster are made one at a time.
	planning chan struct{}

	mu      sync.Mutex
	latest  *Model // never changed, only replaced; nil: nothing was read yet
	cluster *explain.Cluster
	// bound is the last one, of the nodes that there were then.
	bound   *explain.Overview
	changed chan struct{} // closed when latest is replaced
}

// NewFeed returns a feed that looks every interval, and less often if a look takes longer than a tenth of that. It does nothing until Run.
func NewFeed(look Look, interval time.Duration, c clock.Clock) *Feed {
	return &Feed{look: look, interval: interval, clock: c, planning: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Latest returns the latest model, which must not be changed, and a channel that is closed when there is another; nil: nothing was read yet.
func (f *Feed) Latest() (*Model, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}

// Run looks until ctx ends. bound: it also works out what the pods would cost at least.
func (f *Feed) Run(ctx context.Context, bound bool) {
	var working sync.WaitGroup
	defer working.Wait()
	var boundAt time.Time
	free := make(chan struct{}, 1) // one bound at a time
	for {
		start := f.clock.Now()
		c, o := f.once(ctx)
		took := f.clock.Since(start)
		if bound && c != nil && (boundAt.IsZero() || f.clock.Since(boundAt) >= boundEvery) {
			select {
			case free <- struct{}{}:
				boundAt = f.clock.Now()
				working.Go(func() {
					defer func() { <-free }()
					f.addBound(ctx, c, o)
				})
			default:
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-f.clock.After(max(f.interval, mostOfTime*took)):
		}
	}
}

// once looks at the cluster, and keeps what was there before if it can't be read.
func (f *Feed) once(ctx context.Context) (*explain.Cluster, *explain.Overview) {
	c, notes, err := f.look(ctx)
	var o *explain.Overview
	if err == nil {
		o, err = c.Overview(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &Model{}
	switch {
	case ctx.Err() != nil:
		return nil, nil
	case err == nil:
		next, f.cluster = ModelOf(c, o, notes), c
		if f.latest != nil {
			next.History = f.latest.History
		}
		f.putBound(next)
		next.History = extend(next.History, Point{At: next.Head.At, PerHour: next.Head.PerHour, Bound: next.Head.Bound})
	default:
		if f.latest != nil {
			*next = *f.latest
		}
		if next.Head.Problem == "" {
			next.Head.Since = millis(f.clock.Now())
		}
		next.Head.Problem = err.Error()
		c = nil
	}
	f.publish(next)
	return c, o
}

// publish replaces the latest model. f.mu is held.
func (f *Feed) publish(m *Model) {
	f.latest = m
	close(f.changed)
	f.changed = make(chan struct{})
}

// addBound works out the bound of a cluster and puts it into the latest model.
func (f *Feed) addBound(ctx context.Context, c *explain.Cluster, o *explain.Overview) {
	if f.plan(ctx) != nil {
		return
	}
	copied := *o
	err := c.AddBound(ctx, &copied)
	f.planned()
	if err != nil {
		return // the next one may work; the page says that it isn't known
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bound = &copied
	next := *f.latest // there is one: o came with it
	f.putBound(&next)
	f.publish(&next)
}

// putBound puts the last bound into a model that isn't published yet. f.mu is held.
func (f *Feed) putBound(m *Model) {
	if f.bound != nil {
		m.Head.Bound, m.Head.Managed, m.Head.ManagedPerHour = f.bound.Bound, f.bound.Managed, f.bound.ManagedPerHour
	}
}

// plan waits until no other plan is made; planned must follow. An error means that ctx has ended.
func (f *Feed) plan(ctx context.Context) error {
	select {
	case f.planning <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (f *Feed) planned() { <-f.planning }

// errNotRead: the cluster wasn't read yet.
var errNotRead = errors.New("the cluster wasn't read yet")

// ask calls a function with the latest cluster, one at a time.
func (f *Feed) ask(ctx context.Context, do func(*explain.Cluster) error) error {
	if err := f.plan(ctx); err != nil {
		return err
	}
	defer f.planned()
	f.mu.Lock()
	c := f.cluster
	f.mu.Unlock()
	if c == nil {
		return errNotRead
	}
	return do(c)
}
