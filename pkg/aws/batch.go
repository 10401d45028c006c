package aws

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

// batcher turns calls for one key each into calls for many: a batch goes when nobody has joined for batchIdle, when its
// first caller has waited for batchMax, or when it is full. Each caller gets its own key's answer. A batch lives in one
// goroutine that ends with it.
type batcher[K comparable, V any] struct {
	clock clock.WithTicker
	// run answers for every key; keys left out answer with the zero value.
	run func(ctx context.Context, keys []K) map[K]answer[V]

	mu   sync.Mutex
	open *batch[K, V]
}

type answer[V any] struct {
	value V
	err   error
}

type batch[K comparable, V any] struct {
	keys    map[K]struct{}
	order   []K
	joined  chan struct{} // one slot: somebody has joined
	full    chan struct{}
	waiting int
	cancel  context.CancelFunc
	done    chan struct{}
	answers map[K]answer[V]
}

func newBatcher[K comparable, V any](c clock.WithTicker, run func(context.Context, []K) map[K]answer[V]) *batcher[K, V] {
	return &batcher[K, V]{clock: c, run: run}
}

// do answers for one key.
func (b *batcher[K, V]) do(ctx context.Context, key K) (V, error) {
	x := b.joinBatch(ctx, key)
	select {
	case <-x.done:
		a := x.answers[key]
		return a.value, a.err
	case <-ctx.Done():
		b.mu.Lock()
		if x.waiting--; x.waiting == 0 {
			if b.open == x {
				b.open = nil
			}
			x.cancel() // nobody is left to hear the answer
		}
		b.mu.Unlock()
		var zero V
		return zero, ctx.Err()
	}
}

func (b *batcher[K, V]) joinBatch(ctx context.Context, key K) *batch[K, V] {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.open
	if x == nil {
		x = &batch[K, V]{keys: map[K]struct{}{}, joined: make(chan struct{}, 1), full: make(chan struct{}), done: make(chan struct{})}
		// The first caller's values (its logger) without its end: the others must not suffer from that.
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

func (b *batcher[K, V]) live(ctx context.Context, x *batch[K, V]) {
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
