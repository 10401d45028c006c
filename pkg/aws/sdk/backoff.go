package sdk

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// Backoff doubles from a second to a minute.
type Backoff struct{ d time.Duration }

// Next returns the time to wait after one more failure.
func (b *Backoff) Next() time.Duration {
	b.d = min(max(2*b.d, time.Second), time.Minute)
	return b.d
}

// Sleep waits for d; it returns false if ctx ended first.
func Sleep(ctx context.Context, c clock.Clock, d time.Duration) bool {
	t := c.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C():
		return true
	case <-ctx.Done():
		return false
	}
}
