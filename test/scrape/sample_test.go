package scrape

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	at := time.Unix(1000, 0)
	got := Parse(`# HELP go_goroutines Number of goroutines that currently exist.
go_goroutines 231
go_memstats_heap_alloc_bytes 1.5e+07
process_resident_memory_bytes 9.9e+07
process_cpu_seconds_total 12.5
rest_client_requests_total{code="200",host="127.0.0.1:1",method="GET"} 10
rest_client_requests_total{code="201",host="127.0.0.1:1",method="POST"} 4
rest_client_requests_total{code="409",host="127.0.0.1:1",method="POST"} 1
scheduler_schedule_attempts_total{profile="a",result="scheduled"} 3
scheduler_schedule_attempts_total{profile="b",result="scheduled"} 2
scheduler_schedule_attempts_total{profile="a",result="unschedulable"} 7
scheduler_pending_pods{queue="gated"} 6
workqueue_depth{name="nodeclaim.lifecycle"} 8
workqueue_adds_total{name="nodeclaim.lifecycle"} 80
scheduler_scheduling_attempt_duration_seconds_bucket{profile="a",result="scheduled",le="0.1"} 2
scheduler_scheduling_attempt_duration_seconds_bucket{profile="a",result="scheduled",le="+Inf"} 3
scheduler_scheduling_attempt_duration_seconds_sum{profile="a",result="scheduled"} 0.5
scheduler_scheduling_attempt_duration_seconds_count{profile="a",result="scheduled"} 3
scheduler_scheduling_attempt_duration_seconds_count{profile="a",result="unschedulable"} 30
dovetail_plan_duration_seconds_count{phase="verify"} 4
workqueue_queue_duration_seconds_count{name="nodeclaim.lifecycle"} 80
`, at)
	want := Sample{
		At: at, Heap: 15e6, RSS: 99e6, Goroutines: 231, CPU: 12.5, Scheduled: 5,
		Requests: map[string]float64{"GET": 10, "POST": 5}, Queues: map[string]float64{"pods gated": 6, "nodeclaim.lifecycle": 8},
		Histograms: map[string]*Histogram{
			Attempts:  {Sum: 0.5, Count: 3, buckets: map[float64]float64{0.1: 2, math.Inf(1): 3}},
			Verifying: {Count: 4, buckets: map[float64]float64{}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Histogram{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := got.AllRequests(); n != 15 {
		t.Errorf("%g requests", n)
	}
}

func TestQuantile(t *testing.T) {
	before := &Sample{Histograms: map[string]*Histogram{"h": {Sum: 1, Count: 10, buckets: map[float64]float64{1: 10, 2: 10, 4: 10, math.Inf(1): 10}}}}
	now := &Sample{Histograms: map[string]*Histogram{"h": {Sum: 161, Count: 110, buckets: map[float64]float64{1: 60, 2: 100, 4: 108, math.Inf(1): 110}}}}
	h := now.Since(before, "h")
	if h.Count != 100 || h.Mean() != 1.6 {
		t.Errorf("%g values, %g in the mean", h.Count, h.Mean())
	}
	for _, tc := range []struct{ q, want float64 }{{0.25, 0.5}, {0.5, 1}, {0.7, 1.5}, {0.94, 3}, {0.99, 4}} {
		if got := h.Quantile(tc.q); math.Abs(got-tc.want) > 1e-9 {
			t.Errorf("the quantile %g is %g, want %g", tc.q, got, tc.want)
		}
	}
	if got := now.Since(before, "other").Quantile(0.5); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %g", got)
	}
}
