package chaos

import (
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// skewed is the clock of one process: it runs at normal speed, with an offset that may jump. Its times have no monotonic part, so that
// all comparisons are affected by a jump.
type skewed struct {
	clock.RealClock
	offset atomic.Int64
}

var _ clock.WithTicker = &skewed{}

func (c *skewed) jump(d time.Duration) { c.offset.Add(int64(d)) }

// Now implements clock.PassiveClock.
func (c *skewed) Now() time.Time { return time.Now().Round(0).Add(time.Duration(c.offset.Load())) }

// Since implements clock.PassiveClock.
func (c *skewed) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
