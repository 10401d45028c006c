package panics

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
)

var errOther = errors.New("other")

func TestCatch(t *testing.T) {
	caughtBefore := &Error{"there", "boom"}
	for _, tc := range []struct {
		name   string
		f      func() error
		want   string
		counts float64
	}{
		{"it does its work", func() error { return nil }, "", 0},
		{"it fails", func() error { return errOther }, "other", 0},
		{"it panics", func() error { panic("boom") }, "panic in here: boom", 1},
		{"it panics with an error", func() error { panic(errOther) }, "panic in here: other", 1},
		{"the runtime panics", func() error { return []error{}[len("other")] }, "panic in here: runtime error: index out of range [5] with length 0", 1},
		{"a goroutine of it has panicked", func() error { panic(caughtBefore) }, "panic in there: boom", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			caught.Reset()
			got := ""
			if err := Catch(t.Context(), "here", tc.f); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if n, err := testutil.GetCounterMetricValue(caught.WithLabelValues("here")); err != nil || n != tc.counts {
				t.Errorf("counted %v (%v), want %v", n, err, tc.counts)
			}
		})
	}
}

// A panic that has left shared state half changed ends the process, at any depth of calls.
func TestFatalIsNotCaught(t *testing.T) {
	defer func() {
		if v, ok := recover().(Fatal); !ok || v.String() != "boom" {
			t.Errorf("panic %v, want Fatal{boom}", v)
		}
	}()
	_ = Catch(t.Context(), "outer", func() error {
		return Catch(t.Context(), "inner", func() error {
			defer NotCaught()
			panic("boom")
		})
	})
	t.Error("the panic was caught")
}

func TestAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), []time.Duration{}
		Again(t.Context(), clock.RealClock{}, "here", func(context.Context) {
			if tries = append(tries, time.Since(start)); len(tries) < 9 {
				panic("boom")
			}
		})
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 123, 183}
		for i := range want {
			if len(tries) != len(want) || tries[i] != want[i]*time.Second {
				t.Fatalf("tried at %v, want %v seconds", tries, want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		Again(ctx, clock.RealClock{}, "here", func(context.Context) {
			n++
			cancel()
			panic("boom")
		})
		if n != 1 {
			t.Errorf("tried %d times after its end", n)
		}
	})
}
