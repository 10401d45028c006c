package main

import (
	"context"
	"runtime"
	"testing"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	clocktesting "k8s.io/utils/clock/testing"
)

// The first cycle begins when the last leader's reservations are there, or when they take too long; no later cycle waits.
func TestTheFirstCycleWaitsForReservations(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(ready chan struct{}, c *clocktesting.FakeClock, cancel func())
	}{
		{"they are there", func(ready chan struct{}, _ *clocktesting.FakeClock, _ func()) { close(ready) }},
		{"too long", func(_ chan struct{}, c *clocktesting.FakeClock, _ func()) { c.Step(firstCycleWaits) }},
		{"the process ends", func(_ chan struct{}, _ *clocktesting.FakeClock, cancel func()) { cancel() }},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c := clocktesting.NewFakeClock(time.Unix(0, 0))
		ready, begun, cycles := make(chan struct{}), 0, make(chan struct{}, 2)
		sched := &scheduler.Scheduler{NextPod: func(klog.Logger) (*framework.QueuedPodInfo, error) {
			cycles <- struct{}{}
			return nil, nil
		}}
		whenLeading(ctx, sched, c, func() { begun++ }, ready)
		ended := make(chan error)
		go func() {
			_, err := sched.NextPod(klog.Background())
			ended <- err
		}()
		for !c.HasWaiters() {
			runtime.Gosched()
		}
		if len(cycles) != 0 || begun != 1 {
			t.Errorf("%s: %d cycles before, begun %d times", tt.name, len(cycles), begun)
		}
		tt.end(ready, c, cancel)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, err := sched.NextPod(klog.Background()); err != nil || len(cycles) != 2 {
			t.Errorf("%s: %d cycles of 2 (%v)", tt.name, len(cycles), err)
		}
		cancel()
	}
}
