package shared

import (
	"errors"
	"testing"
	"time"
)

func TestAnswer(t *testing.T) {
	const every = 2 * time.Second
	start := time.Unix(1000, 0)
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	var a Answer[int]
	asked := 0
	get := func(since, now int, err error) (int, time.Duration, error) {
		return a.Get(at(since), at(now), every, func() (int, error) {
			asked++
			if _, wait, _ := a.Get(at(since), at(now), every, func() (int, error) { panic("asked twice at a time") }); wait != poll {
				t.Errorf("while it is asked the wait is %s", wait)
			}
			return asked, err
		})
	}
	for _, tt := range []struct {
		since, now int
		fails      error
		want       int
		wait       time.Duration
	}{
		{since: 10, now: 10, want: 1},
		{since: 9, now: 11, want: 1},
		{since: 11, now: 11, wait: time.Second},
		{since: 11, now: 12, fails: errors.New("throttled"), want: 2},
		{since: 11, now: 12, want: 3}, // what fails is asked again at once: the callers have a back-off
		{since: 12, now: 30, want: 3},
	} {
		got, wait, err := get(tt.since, tt.now, tt.fails)
		if got != tt.want || wait != tt.wait || !errors.Is(err, tt.fails) {
			t.Errorf("%+v: %d, %s, %v", tt, got, wait, err)
		}
	}
	if a.Idle(at(60)) || !a.Idle(at(1000)) {
		t.Error("an answer is idle after ten minutes")
	}
}
