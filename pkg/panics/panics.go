// Package panics keeps a panic from ending the process if the work that panicked is independent and will be tried again: a plan, a
// launch, the reconciliation of one object. The scheduler of the whole cluster runs in the same process, and a crash caused by one odd
// object would happen again at every start.
//
// It is not for code that changes shared state: after a panic that state can't be trusted (see Fatal).
package panics

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

var caught = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Name: "panics_total",
	Help:           "Panics that were caught, by the part of Dovetail that will try again.",
	StabilityLevel: metrics.ALPHA,
}, []string{"part"})

func init() { legacyregistry.MustRegister(caught) }

// Error is a panic that was caught.
type Error struct {
	Part  string
	Value any
}

func (e *Error) Error() string { return fmt.Sprintf("panic in %s: %v", e.Part, e.Value) }

// Fatal is the value of a panic that is never caught, because it has left shared state half changed.
type Fatal struct{ Value any }

func (f Fatal) String() string { return fmt.Sprint(f.Value) }

// NotCaught turns a panic of its caller into a Fatal, which is not caught further up. Call it with defer.
func NotCaught() {
	if v := recover(); v != nil {
		if _, fatal := v.(Fatal); !fatal {
			v = Fatal{v}
		}
		panic(v)
	}
}

// Catch runs f and returns its error, or an *Error if it panics. The panic is logged with its stack, and counted for the part. If f
// panics with an *Error, that panic was caught before, in another goroutine, and is returned as it is.
func Catch(ctx context.Context, part string, f func() error) (err error) {
	defer func() {
		v := recover()
		switch v := v.(type) {
		case nil:
		case Fatal:
			panic(v)
		case *Error:
			err = v
		default:
			caught.WithLabelValues(part).Inc()
			e := &Error{part, v}
			klog.FromContext(ctx).Error(e, "Caught a panic, which is a bug. The work that panicked will be retried", "part", part, "stack", string(debug.Stack()))
			err = e
		}
	}()
	return f()
}

const firstPause, maxPause = time.Second, time.Minute

// Again runs f, and runs it again after each panic, after a pause that grows to a minute. It returns when f returns, or when ctx has
// ended.
func Again(ctx context.Context, c clock.Clock, part string, f func(context.Context)) {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := Catch(ctx, part, func() error {
			f(ctx)
			return nil
		})
		if e := (*Error)(nil); !errors.As(err, &e) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-c.After(pause):
		}
	}
}
