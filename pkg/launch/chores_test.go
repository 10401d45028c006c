package launch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// slowNotes are Claims whose records are never written in time.
type slowNotes struct{ *world }

func (s slowNotes) RecordLaunchFailed(ctx context.Context, _ *capacity.Claim, _, _ string) error {
	<-ctx.Done()
	return ctx.Err()
}

func (s slowNotes) RecordSlots(ctx context.Context, _ string, _ []capacity.Slot) error {
	<-ctx.Done()
	return ctx.Err()
}

// Records about failed launches or reservations take long while the API server is slow: the next launches don't wait for them.
func TestLaunchesDoNotWaitForNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.broken["Prepare"] = errors.New("the subnet is gone")
		w.build()
		w.parts.claims.ClaimLog = slowNotes{w}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			w.launcher.Run(ctx)
			close(done)
		}()
		defer func() {
			cancel()
			<-done
		}()
		w.submit(80) // twenty nodes: more records than parallel calls
		pass(500 * time.Millisecond)
		w.mu.Lock()
		delete(w.broken, "Prepare")
		w.mu.Unlock()
		pass(time.Minute)
		if _, instances, bound := w.count(); instances != 20 || bound != 80 {
			t.Errorf("%d instances and %d pods bound, want 20 and 80", instances, bound)
		}
	})
}
