package launch

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// calls runs what controllers do in the background, and limits how many API and cloud calls run at once. Everything that it has started ends
// when its context does; wg is waited for before the leader stops. Safe for concurrent use.
type calls struct {
	clock  clock.WithTicker
	slots  chan struct{} // semaphore of the calls that launches wait for
	chores chan struct{} // semaphore of the calls that no launch waits for
	wg     sync.WaitGroup
}

func newCalls(c clock.WithTicker, parallel int) *calls {
	return &calls{clock: c, slots: make(chan struct{}, max(parallel, 1)), chores: make(chan struct{}, max(parallel/choresShare, 1))}
}

// choresShare is how many calls of launches may run for each call that no launch waits for.
const choresShare = 4

// background runs f beside everything else; no launch waits for it: it records a reservation or ends a claim, say. With an API server that
// is slow or throttles, thousands of these may be due, and launches must not queue behind them.
func (c *calls) background(ctx context.Context, f func()) {
	c.wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case c.chores <- struct{}{}:
		}
		defer func() { <-c.chores }()
		_ = panics.Catch(ctx, "launch", func() error { // logged by Catch
			f()
			return nil
		})
	})
}

// each runs f for 0..n-1, at most Parallel at once, and waits for all calls. If calls panic, it panics with the error of the first.
func (c *calls) each(ctx context.Context, n int, f func(i int)) {
	done := make(chan error, n)
	for i := range n {
		go func() {
			done <- panics.Catch(ctx, "launch", func() error {
				select {
				case <-ctx.Done():
				case c.slots <- struct{}{}:
					defer func() { <-c.slots }()
					f(i)
				}
				return nil
			})
		}()
	}
	var first error
	for range n {
		first = cmp.Or(first, <-done)
	}
	if first != nil {
		panic(first)
	}
}

// sleep waits for d and returns false when ctx ends first.
func (c *calls) sleep(ctx context.Context, d time.Duration) bool {
	t := c.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// limited makes a call when the semaphore of parallel calls admits it.
func (c *calls) limited(ctx context.Context, call func() ([]capacity.Instance, error)) ([]capacity.Instance, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c.slots <- struct{}{}:
	}
	defer func() { <-c.slots }()
	return call()
}
