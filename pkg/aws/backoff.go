package aws

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// backoff doubles from a second to a minute.
type backoff struct{ d time.Duration }

// next returns the time to wait after one more failure.
func (b *backoff) next() time.Duration {
	b.d = min(max(2*b.d, time.Second), time.Minute)
	return b.d
}

// sleep waits for d; it returns false if ctx ended first.
func sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}
