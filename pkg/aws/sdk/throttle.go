package sdk

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/utils/clock"
)

// rate is a token bucket's size and refill per second.
type rate struct{ burst, perSecond float64 }

// rates per action are four fifths of what is documented per account and region
// (docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html), so that other users of the account get their share. An action
// that is not listed has the rate of its service.
var rates = map[string]rate{
	// EC2: mutating actions 50 + 5/s unless listed otherwise there.
	"CreateFleet":          {40, 4},
	"CreateLaunchTemplate": {40, 4},
	"DeleteLaunchTemplate": {40, 4},
	"TerminateInstances":   {80, 4},
	// The instances in the calls have a limit of their own: 1,000 + 20/s.
	terminatedInstances: {800, 16},
	"CreateTags":        {80, 8},
	// Dry runs only: 5 + 2/s.
	"RunInstances": {4, 1.6},
	// All our describe calls have filters or pages: 100 + 20/s.
	"EC2": {80, 16},
	// Pricing: 10 + 5/s.
	"Pricing": {8, 4},
	// No numbers are published for these; they are called rarely.
	"SSM": {20, 10},
	"IAM": {10, 5},
	"EKS": {5, 1},
	"SQS": {20, 10},
}

const terminatedInstances = "TerminateInstances/instances"

// throttle makes callers wait instead of being refused. There is one per process, because AWS's limits apply to the account.
type throttle struct {
	clock clock.Clock
	mu    sync.Mutex
	// free is when the bucket will be full again, by action or service; the number of its tokens now follows from that.
	free map[string]time.Time
	last time.Time // the clock's time when a token was last asked for
}

func newThrottle(c clock.Clock) *throttle { return &throttle{clock: c, free: map[string]time.Time{}} }

// turn waits until a call may be made: for a token of its action, and, where EC2 counts the items in a call, for one per item.
func (t *throttle) turn(ctx context.Context, service, action string, input any) error {
	if in, ok := input.(*ec2.TerminateInstancesInput); ok {
		if err := t.take(ctx, terminatedInstances, rates[terminatedInstances], len(in.InstanceIds)); err != nil {
			return err
		}
	}
	return t.wait(ctx, service, action)
}

// wait takes one token of the action.
func (t *throttle) wait(ctx context.Context, service, action string) error {
	key := action
	r, ok := rates[key]
	if !ok {
		if r, ok = rates[service]; !ok {
			return nil
		}
		key = service + "/" + action
	}
	return t.take(ctx, key, r, 1)
}

// now returns the time. If the clock was set back, the buckets are moved back, too: otherwise calls would wait until the clock has
// caught up.
func (t *throttle) now() time.Time {
	now := t.clock.Now()
	if back := t.last.Sub(now); back > 0 {
		for key, at := range t.free {
			t.free[key] = at.Add(-back)
		}
	}
	t.last = now
	return now
}

// take takes n tokens of a bucket as soon as they are available. If ctx ends first, it takes none.
func (t *throttle) take(ctx context.Context, key string, r rate, n int) error {
	each := time.Duration(float64(time.Second) / r.perSecond)
	token := time.Duration(n) * each
	full := time.Duration(r.burst) * each

	t.mu.Lock()
	now := t.now()
	at := t.free[key]
	if at.Before(now) {
		at = now
	}
	at = at.Add(token)
	delay := at.Sub(now) - full
	if dl, ok := ctx.Deadline(); ok && delay > 0 && now.Add(delay).After(dl) {
		t.mu.Unlock()
		return context.DeadlineExceeded
	}
	t.free[key] = at
	t.mu.Unlock()

	if delay <= 0 {
		return nil
	}
	timer := t.clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		t.free[key] = t.free[key].Add(-token)
		t.mu.Unlock()
		return ctx.Err()
	}
}
