package batcher

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestBatches(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	var mu sync.Mutex
	var runs [][]string
	b := New(c, func(_ context.Context, keys []string) map[string]Answer[string] {
		mu.Lock()
		defer mu.Unlock()
		sorted := slices.Sorted(slices.Values(keys))
		runs = append(runs, sorted)
		out := map[string]Answer[string]{}
		for _, k := range keys {
			out[k] = Answer[string]{Value: strings.ToUpper(k)}
			if k == "bad" {
				out[k] = Answer[string]{Err: errors.New("no")}
			}
		}
		return out
	})
	type reply struct {
		value string
		err   error
	}
	ask := func(ctx context.Context, key string) chan reply {
		out := make(chan reply, 1)
		go func() {
			v, err := b.Do(ctx, key)
			out <- reply{v, err}
		}()
		return out
	}
	joined := func(n int) {
		for {
			b.mu.Lock()
			ok := b.open != nil && b.open.waiting == n && len(b.open.joined) == 0
			b.mu.Unlock()
			if ok && c.HasWaiters() {
				return
			}
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	first, same, bad, left := ask(t.Context(), "a"), ask(t.Context(), "a"), ask(t.Context(), "bad"), ask(ctx, "gone")
	joined(4)
	giveUp()
	if r := <-left; !errors.Is(r.err, context.Canceled) {
		t.Errorf("who gave up gets %v", r)
	}
	joined(3)
	for done := false; !done; {
		// The timer may be reset at this moment, for the last caller that joined: then one step is too early.
		c.Step(batchIdle)
		select {
		case r := <-first:
			if done = true; r != (reply{"A", nil}) {
				t.Errorf("a gets %v", r)
			}
		case <-time.After(time.Millisecond):
		}
	}
	if r := <-same; r != (reply{"A", nil}) {
		t.Errorf("the other a gets %v", r)
	}
	if r := <-bad; r.err == nil {
		t.Error("bad gets no error")
	}
	if diff := cmp.Diff([][]string{{"a", "bad", "gone"}}, runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}
