package lifecycle

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestSighting(t *testing.T) {
	type answer struct {
		at    time.Duration // since launch
		state capacity.InstanceState
	}
	const missing = capacity.InstanceState("")
	misses := func(first time.Duration, n int) (out []answer) {
		for i := range n {
			out = append(out, answer{first + time.Duration(i)*lookEvery, missing})
		}
		return out
	}
	for _, tc := range []struct {
		name    string
		answers []answer
		want    verdict
	}{
		{name: "seen", answers: []answer{{0, capacity.InstanceRunning}}, want: alive},
		{name: "on its way out is still there", answers: []answer{{0, capacity.InstanceShuttingDown}}, want: alive},
		{name: "terminated is the end at any age", answers: []answer{{time.Second, capacity.InstanceTerminated}}, want: ended},
		{name: "unknown soon after the launch means nothing, however often", want: unsure,
			answers: []answer{{time.Second, missing}, {30 * time.Second, missing}, {60 * time.Second, missing}, {119 * time.Second, missing}}},
		{name: "unknown once means nothing at any age", answers: []answer{{time.Hour, missing}}, want: unsure},
		{name: "three times in a row is believed", want: ended,
			answers: []answer{{0, capacity.InstanceRunning}, {time.Hour, missing}, {time.Hour + 5*time.Second, missing}, {time.Hour + 10*time.Second, missing}}},
		{name: "twice is not", answers: []answer{{0, capacity.InstanceRunning}, {time.Hour, missing}, {time.Hour + time.Minute, missing}}, want: unsure},
		{name: "never seen: the age that somebody has written down is no reason", want: unsure, answers: misses(time.Hour, 23)},
		{name: "never seen, and looked for as long as a launch may take to show", want: ended, answers: misses(time.Hour, 26)},
		{name: "a clock that jumps is not time that passes", want: unsure,
			answers: []answer{{0, missing}, {5 * time.Second, missing}, {time.Hour, missing}, {time.Hour + 5*time.Second, missing}}},
		{name: "nor is one that jumps back", want: unsure,
			answers: []answer{{0, capacity.InstanceRunning}, {time.Hour, missing}, {5 * time.Second, missing}, {10 * time.Second, missing}}},
		{name: "not three times at once", want: unsure,
			answers: []answer{{0, capacity.InstanceRunning}, {time.Hour, missing}, {time.Hour + time.Second, missing}, {time.Hour + 2*time.Second, missing}}},
		{name: "being seen in between starts over", want: unsure,
			answers: []answer{{0, capacity.InstanceRunning}, {time.Hour, missing}, {time.Hour + 5*time.Second, missing}, {time.Hour + 6*time.Second, capacity.InstanceRunning},
				{time.Hour + 10*time.Second, missing}, {time.Hour + 15*time.Second, missing}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s sighting
			var got verdict
			for _, a := range tc.answers {
				got = s.see(capacity.Instance{State: a.state}, a.state != missing, epoch, epoch.Add(a.at))
			}
			if got != tc.want {
				t.Errorf("verdict %d, want %d", got, tc.want)
			}
		})
	}
}
