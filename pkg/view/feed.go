package view

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

const (
	// boundEvery is how often the bound is worked out again at most.
	boundEvery = 5 * time.Second
	// mostOfTime: at most one part in mostOfTime of the time is spent on reading the cluster, and on working out the bound. But reading never pauses
	// for longer than longestPause.
	mostOfTime   = 10
	longestPause = 30 * time.Second
	// A look is given up, so that the page can say so, after patienceFactor times the longest look so far, but not before shortestPatience. The first
	// look may take firstPatience. Each look that is given up doubles the time that the next one may take, up to longestPatience: otherwise a
	// cluster whose API server needs that long would never be shown.
	shortestPatience = 10 * time.Second
	firstPatience    = 2 * time.Minute
	longestPatience  = 10 * time.Minute
	patienceFactor   = 5
)

// Look reads the cluster. notes say what the numbers assume.
type Look func(context.Context) (c *explain.Cluster, notes []string, err error)

// Feed looks at a cluster again and again and keeps the latest model.
type Feed struct {
	look     Look
	interval time.Duration
	clock    clock.Clock
	process  string // Head.Process of all models
	// wanted holds a token if somebody has opened the page or asked for something since the last look.
	wanted chan struct{}
	// planning holds one token: plans on the latest cluster are made one at a time.
	planning chan struct{}
	lookTimes

	mu      sync.Mutex
	latest  *Model // never changed, only replaced; nil: nothing was read yet
	cluster *explain.Cluster
	// bound is the last one, of the nodes that there were then; nil: there is none yet, or the last attempt failed.
	bound   *explain.Least
	changed chan struct{} // closed when latest is replaced
}

// lookTimes is how long looks have taken. Only Run's goroutine uses it.
type lookTimes struct {
	// longest is how long the longest look has taken that read the cluster; 0: none has. patience is how long the next look may take because those
	// before it were given up; 0: none was.
	longest, patience time.Duration
}

// NewFeed returns a feed that looks at the cluster every interval, and less often if looks take longer than a tenth of that (mostOfTime). It does
// nothing until Run.
func NewFeed(look Look, interval time.Duration, c clock.Clock) *Feed {
	return &Feed{look: look, interval: interval, clock: c, process: rand.Text(), wanted: make(chan struct{}, 1), planning: make(chan struct{}, 1), changed: make(chan struct{})}
}

// Latest returns the latest model, which must not be changed, and a channel that is closed when there is another; nil: nothing was read yet.
func (f *Feed) Latest() (*Model, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}

// Want asks for a look soon, because somebody looks at the page. It never waits.
func (f *Feed) Want() {
	select {
	case f.wanted <- struct{}{}:
	default:
	}
}

// rest waits for a pause. If a look is wanted it waits only as long as the last one has taken, and no shorter than the interval. It
// returns false if ctx has ended.
func (f *Feed) rest(ctx context.Context, pause, took time.Duration) bool {
	end := f.clock.NewTimer(pause)
	defer end.Stop()
	soonest := f.clock.NewTimer(min(pause, max(f.interval, took)))
	defer soonest.Stop()
	var wanted <-chan struct{} // not before soonest
	for {
		select {
		case <-ctx.Done():
			return false
		case <-end.C():
			return true
		case <-soonest.C():
			wanted = f.wanted
		case <-wanted:
			return true
		}
	}
}

// Run looks until ctx ends. bound: it also works out what the pods would cost at least.
func (f *Feed) Run(ctx context.Context, bound bool) {
	var working sync.WaitGroup
	defer working.Wait()
	bounds := make(chan time.Time, 1) // holds when the bound may be worked out again, unless that is being done
	bounds <- time.Time{}
	for {
		start := f.clock.Now()
		select {
		case <-f.wanted: // this look answers it
		default:
		}
		c, o, err := f.once(ctx)
		took := f.clock.Since(start)
		pause := f.interval
		// A look that was given up is as much work for the API server as one that was answered.
		if c != nil || errors.Is(err, errNoAnswer) {
			pause = max(pause, min(mostOfTime*took, longestPause))
		}
		if bound && c != nil {
			select {
			case next := <-bounds:
				if f.clock.Now().Before(next) {
					bounds <- next
					break
				}
				working.Go(func() {
					begun := f.clock.Now()
					f.addBound(ctx, c, o)
					now := f.clock.Now()
					bounds <- now.Add(max(boundEvery, mostOfTime*now.Sub(begun)))
				})
			default:
			}
		}
		if !f.rest(ctx, pause, took) {
			return
		}
	}
}

// errNoAnswer: a look was given up.
var errNoAnswer = errors.New("the cluster hasn't answered")

// read looks at the cluster, with the patience that looks have needed so far. An API server that was stopped may keep connections that it doesn't
// answer on.
func (f *Feed) read(ctx context.Context) (*explain.Cluster, []string, error) {
	patience := firstPatience
	if f.longest > 0 {
		patience = max(shortestPatience, patienceFactor*f.longest)
	}
	patience = max(patience, f.patience)
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := f.clock.NewTimer(patience)
	defer timer.Stop()
	read := make(chan struct{})
	defer close(read)
	go func() {
		select {
		case <-timer.C():
			cancel(fmt.Errorf("%w within %v", errNoAnswer, patience.Round(time.Second)))
		case <-read:
		}
	}()
	start := f.clock.Now()
	c, notes, err := f.look(limited)
	if err == nil {
		f.longest, f.patience = max(f.longest, f.clock.Since(start)), 0
	} else if limited.Err() != nil && ctx.Err() == nil {
		err = context.Cause(limited)
		f.patience = min(2*patience, longestPatience)
	}
	return c, notes, err
}

// once looks at the cluster, and keeps what was there before if it can't be read.
func (f *Feed) once(ctx context.Context) (*explain.Cluster, *explain.Overview, error) {
	c, notes, err := f.read(ctx)
	var o *explain.Overview
	if err == nil {
		o, err = c.Overview(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &Model{}
	switch {
	case ctx.Err() != nil:
		return nil, nil, ctx.Err()
	case err == nil:
		next, f.cluster = ModelOf(c, o, notes), c
		next.Head.ReadAt = millis(f.clock.Now())
		if f.latest != nil {
			next.History = f.latest.History
		}
		f.putBound(next)
		next.History = extend(next.History, Point{At: next.Head.At, PerHour: next.Head.PerHour, Bound: next.Head.comparable()})
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
	next.Head.Process, next.Head.Interval = f.process, f.interval.Milliseconds()
	f.publish(next)
	return c, o, err
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
	copied.BoundAt = c.Now
	err := c.AddBound(ctx, &copied)
	f.planned()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bound = &copied.Least; err != nil {
		f.bound = nil // the next one may work; the page says that it isn't known, because the last one is about nodes that have changed
	}
	next := *f.latest // there is one: o came with it
	f.putBound(&next)
	f.publish(&next)
}

// putBound puts the last bound into a model that isn't published yet. f.mu is held.
func (f *Feed) putBound(m *Model) {
	b := f.bound
	if b == nil {
		b = &explain.Least{}
	}
	m.Head.putBound(b)
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
