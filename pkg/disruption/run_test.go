package disruption

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Run ends what is due and leaves nothing behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newWorld(t, pool())
	w.machine("a")
	w.clock.Step(time.Hour)
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
	select {
	case <-fenced:
	case <-time.After(30 * time.Second):
		t.Error("nothing was ended")
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
