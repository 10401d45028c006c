package limits

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestReliefIsDue(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const most = 1000
	limited := &capacity.Pool{Name: "limited", Limits: capacity.Resources{"cpu": 1}}
	open := &capacity.Pool{Name: "open"}
	shared := &capacity.Pool{Name: "shared", Total: &capacity.Total{Limits: capacity.Resources{"cpu": 1}}}
	refusal := func(retryable bool, pool string) []capacity.Refusal {
		return []capacity.Refusal{{Retryable: true, Reasons: []capacity.PoolReason{{Pool: "open"}}}, {Retryable: retryable, Reasons: []capacity.PoolReason{{Pool: pool}}}}
	}
	for _, tc := range []struct {
		name     string
		then     func(r *Relief)
		inFlight int
		want     bool
	}{
		{"nobody waits", func(r *Relief) { r.ClaimEnded("limited") }, 0, false},
		{"for nodes in flight, and a tenth of them has come", func(r *Relief) { r.Crowded() }, most - most/10, true},
		{"fewer of them have come", func(r *Relief) { r.Crowded() }, most - most/10 + 1, false},
		{"for a limit, and a claim has ended", func(r *Relief) { r.Limited("limited"); r.ClaimEnded("limited") }, most, true},
		{"for one that a plan was made with", func(r *Relief) {
			r.Refused([]*capacity.Pool{open, limited}, refusal(true, "limited"))
			r.ClaimEnded("limited")
		}, most, true},
		{"nobody knows of which pool it was", func(r *Relief) { r.Limited("limited"); r.ClaimEnded("") }, most, true},
		{"one of another pool has ended", func(r *Relief) { r.Limited("limited"); r.ClaimEnded("open") }, most, false},
		{"one had ended before", func(r *Relief) { r.ClaimEnded("limited"); r.Limited("limited") }, most, false},
		{"one has ended while the plan was made", func(r *Relief) {
			ends := r.Begins()
			r.ClaimEnded("limited")
			r.Limited("limited")
			ends()
		}, most, true},
		{"one had ended before the plan was made", func(r *Relief) {
			r.ClaimEnded("limited")
			r.Begins()()
			r.Limited("limited")
		}, most, false},
		{"its pods are not refused yet", func(r *Relief) {
			r.Begins()
			r.Limited("limited")
			r.Crowded()
			r.ClaimEnded("limited")
		}, 0, false},
		{"the pool has no limits", func(r *Relief) {
			r.Refused([]*capacity.Pool{open, limited}, refusal(true, "open"))
			r.ClaimEnded("open")
		}, most, false},
		{"for the limit of all pools, and a claim of any pool has ended", func(r *Relief) { r.TotalLimited(); r.ClaimEnded("other") }, most, true},
		{"for the limit of all pools that a plan was made with", func(r *Relief) {
			r.Refused([]*capacity.Pool{shared}, refusal(true, "shared"))
			r.ClaimEnded("other")
		}, most, true},
		{"for the limit of all pools, and one had ended before", func(r *Relief) { r.ClaimEnded("other"); r.TotalLimited() }, most, false},
		{"for the limit of all pools, and one has ended while the plan was made", func(r *Relief) {
			ends := r.Begins()
			r.ClaimEnded("other")
			r.TotalLimited()
			ends()
		}, most, true},
		{"there is a limit of all pools, and the pods are refused for good", func(r *Relief) {
			r.Refused([]*capacity.Pool{shared}, []capacity.Refusal{{Reasons: []capacity.PoolReason{{Pool: "shared"}}}})
			r.ClaimEnded("shared")
		}, most, false},
		{"the pods are refused for good", func(r *Relief) {
			r.Refused([]*capacity.Pool{open, limited}, refusal(false, "limited"))
			r.ClaimEnded("limited")
		}, most, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := New(most)
			tc.then(r)
			inFlight := func() int { return tc.inFlight }
			if got := r.Due(now, inFlight); got != tc.want {
				t.Errorf("due: %t, want %t", got, tc.want)
			}
			if r.Due(now, inFlight) {
				t.Error("due a second time")
			}
		})
	}
}

// Claims that end one after the other cause a plan now and then, not one each.
func TestReliefOfLimitsPauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r, plans := &Relief{most: 1}, 0
	for range 60 {
		r.Limited("pool")
		r.ClaimEnded("pool")
		if r.Due(now, func() int { return 0 }) {
			plans++
		}
		now = now.Add(time.Second)
	}
	if plans != 12 {
		t.Errorf("%d plans in a minute, want 12", plans)
	}
}
