package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

var errWatch = errors.New("no watch")

// The process ends when one of its parts does: otherwise the other parts would buy nodes that no controller drains or collects.
func TestProcessEndsWithItsParts(t *testing.T) {
	untilDone := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for _, tc := range []struct {
		name string
		part func(context.Context) error
		want string // empty: until ctx ends
	}{
		{"all of them run", untilDone, ""},
		{"one fails", func(context.Context) error { return errWatch }, "lifecycle has stopped: no watch"},
		{"one comes to its end", func(context.Context) error { return nil }, "lifecycle has stopped: it has come to its end"},
		{"one has nothing to run for", endless(func(context.Context) {}), "lifecycle has stopped: it has come to its end"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				start, other := time.Now(), false
				d := newDovetail()
				err := d.until(ctx, func(ctx context.Context) error {
					d.controllers.Go(func() { d.run(ctx, "lifecycle", tc.part) })
					d.controllers.Go(func() {
						<-ctx.Done()
						other = true
					})
					<-ctx.Done()
					return nil
				})
				if !other {
					t.Error("the other parts go on")
				}
				if told := time.Since(start) == time.Hour; told != (tc.want == "") {
					t.Errorf("ended after %v", time.Since(start))
				}
				if tc.want == "" {
					if err != nil && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("error %v", err)
					}
				} else if err == nil || err.Error() != tc.want {
					t.Errorf("error %v, want %q", err, tc.want)
				}
			})
		})
	}
}
