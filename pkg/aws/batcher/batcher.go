package batcher

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	batchIdle = 100 * time.Millisecond
	batchMax  = time.Second
	batchSize = 500
)

// Batcher turns calls for one key each into calls for many. A batch is sent when no caller has joined for batchIdle, when its first
// caller has waited for batchMax, or when it is full. Each caller gets its own key's answer. A batch runs in one goroutine, which ends
// when the batch has its answers.
type Batcher[K comparable, V any] struct {
	clock clock.WithTicker
	// run returns the answers for all keys; keys without an answer get the zero value.
	run func(ctx context.Context, keys []K) map[K]Answer[V]

	mu   sync.Mutex
	open *batch[K, V]
}

// Answer is the value for a key, or why there is none.
type Answer[V any] struct {
	Value V
	Err   error
}

type batch[K comparable, V any] struct {
	keys    map[K]struct{}
	order   []K
	joined  chan struct{} // buffer of one: signals that a caller has joined
	full    chan struct{}
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	answers map[K]Answer[V]
}

// New returns a batcher whose batches are answered by run.
func New[K comparable, V any](c clock.WithTicker, run func(context.Context, []K) map[K]Answer[V]) *Batcher[K, V] {
	return &Batcher[K, V]{clock: c, run: run}
}

// Do returns the answer for one key.
func (b *Batcher[K, V]) Do(ctx context.Context, key K) (V, error) {
	x := b.joinBatch(ctx, key)
	select {
	case <-x.done:
		a := x.answers[key]
		return a.Value, a.Err
	case <-ctx.Done():
		b.mu.Lock()
		if x.waiting--; x.waiting == 0 {
			if b.open == x {
				b.open = nil
			}
			x.cancel() // no caller waits for the answer any more
		}
		b.mu.Unlock()
		var zero V
		return zero, ctx.Err()
	}
}

func (b *Batcher[K, V]) joinBatch(ctx context.Context, key K) *batch[K, V] {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.open
	if x == nil {
		x = &batch[K, V]{keys: map[K]struct{}{}, joined: make(chan struct{}, 1), full: make(chan struct{}), done: make(chan struct{})}
		// The batch's context has the first caller's values (its logger), but not its cancellation, which must not affect the other
		// callers.
		var bctx context.Context
		bctx, x.cancel = context.WithCancel(context.WithoutCancel(ctx))
		b.open = x
		go b.live(bctx, x)
	}
	x.waiting++
	if _, ok := x.keys[key]; !ok {
		x.keys[key] = struct{}{}
		x.order = append(x.order, key)
	}
	select {
	case x.joined <- struct{}{}:
	default:
	}
	if len(x.order) >= batchSize {
		b.open = nil
		close(x.full)
	}
	return x
}

func (b *Batcher[K, V]) live(ctx context.Context, x *batch[K, V]) {
	defer x.cancel()
	defer close(x.done)
	last := b.clock.NewTimer(batchMax)
	defer last.Stop()
	idle := b.clock.NewTimer(batchIdle)
	defer func() { idle.Stop() }()
	for waiting := true; waiting; {
		select {
		case <-x.joined:
			idle.Stop()
			idle = b.clock.NewTimer(batchIdle)
		case <-idle.C():
			waiting = false
		case <-last.C():
			waiting = false
		case <-x.full:
			waiting = false
		case <-ctx.Done():
			return
		}
	}
	b.mu.Lock()
	if b.open == x {
		b.open = nil
	}
	keys := x.order
	b.mu.Unlock()
	x.answers = b.run(ctx, keys)
}
