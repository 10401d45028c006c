package disruption

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Run terminates what has been due since it began to watch, survives a panic, and leaves nothing behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newWorld(t, pool())
	w.machine("a")
	w.clock.Step(time.Hour)
	hold, mistakes := w.c.passes.hold, 2
	w.c.passes.hold = func() error {
		if mistakes--; mistakes >= 0 {
			panic("a mistake")
		}
		return hold()
	}
	fenced := make(chan struct{}, 1)
	w.interrupt = func(call string) {
		if call == "delete" {
			fenced <- struct{}{}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informing, stopInforming := context.WithCancel(t.Context())
	w.factory.Start(informing.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	for ended, tries := false, 0; !ended; tries++ {
		select {
		case <-fenced:
			ended = true
		case <-time.After(10 * time.Millisecond):
			w.clock.Step(10 * time.Second)
		}
		if tries > 3000 {
			t.Fatal("nothing was ended")
		}
	}
	if w.clock.Since(epoch) < time.Hour+time.Minute {
		t.Errorf("ended %s after the process began to watch", w.clock.Since(epoch)-time.Hour)
	}
	w.c.Changed()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.c.Changed()
	stopInforming()
	w.factory.Shutdown()
}
