package sdk

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestTurns(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	b := newThrottle(c)
	// delay returns how long a caller would have to wait now; it doesn't wait itself.
	delay := func(action string) time.Duration {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.wait(ctx, "EC2", action) }()
		for {
			select {
			case err := <-done:
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				return 0
			default:
			}
			if c.HasWaiters() {
				break
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		r := rates[action]
		d := b.free[action].Sub(c.Now()) - time.Duration(r.burst/r.perSecond*float64(time.Second))
		cancel()
		b.mu.Unlock()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("whoever gives up is told %v", err)
		}
		b.mu.Lock()
		return d
	}
	for i := range 40 {
		if d := delay("CreateFleet"); d != 0 {
			t.Fatalf("call %d of the burst waits %v", i, d)
		}
	}
	if d := delay("CreateFleet"); d != 250*time.Millisecond {
		t.Errorf("the next one waits %v, want a quarter of a second", d)
	}
	// That caller has given up; the next one doesn't wait for its token.
	if d := delay("CreateFleet"); d != 250*time.Millisecond {
		t.Errorf("after one who gave up, a caller waits %v", d)
	}
	if d := delay("CreateTags"); d != 0 {
		t.Errorf("another action waits %v", d)
	}
	c.Step(time.Second)
	for i := range 4 {
		if d := delay("CreateFleet"); d != 0 {
			t.Errorf("a second later call %d waits %v", i, d)
		}
	}
	if d := delay("CreateFleet"); d == 0 {
		t.Error("more than four calls a second")
	}
	ctx, cancel := context.WithDeadline(t.Context(), c.Now().Add(time.Millisecond))
	defer cancel()
	if err := b.wait(ctx, "EC2", "CreateFleet"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn after the deadline: %v", err)
	}
}

// The number of terminated instances is limited, too, however few calls they need.
func TestTurnsOfManyInstances(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	b := newThrottle(c)
	end := func(n int) chan error {
		done := make(chan error, 1)
		go func() {
			done <- b.turn(t.Context(), "EC2", "TerminateInstances", &awsec2.TerminateInstancesInput{InstanceIds: make([]string, n)})
		}()
		return done
	}
	for range 2 { // 800 at once
		if err := <-end(400); err != nil {
			t.Fatal(err)
		}
	}
	third := end(160)
	for !c.HasWaiters() {
		runtime.Gosched()
	}
	c.Step(9 * time.Second) // 144 of 160
	select {
	case err := <-third:
		t.Fatalf("let go too early: %v", err)
	default:
	}
	c.Step(time.Second)
	if err := <-third; err != nil {
		t.Error(err)
	}
}

// If the clock is set back, calls don't wait until it has caught up.
func TestTurnsWhenTheClockIsSetBack(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(10_000, 0))
	b := newThrottle(c)
	if err := b.wait(t.Context(), "EC2", "DescribeInstances"); err != nil {
		t.Fatal(err)
	}
	c.SetTime(time.Unix(9_000, 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // by the real clock, in case the wait doesn't end
	defer cancel()
	if err := b.wait(ctx, "EC2", "DescribeInstances"); err != nil {
		t.Errorf("a call with all tokens there had to wait: %v", err)
	}
}
