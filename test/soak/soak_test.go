package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	at := time.Unix(1000, 0)
	got := parse(`# HELP go_goroutines Number of goroutines that currently exist.
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
`, at)
	want := sample{
		at: at, heap: 15e6, rss: 99e6, goroutines: 231, cpu: 12.5, scheduled: 5,
		requests: map[string]float64{"GET": 10, "POST": 5}, queues: map[string]float64{"pods gated": 6, "nodeclaim.lifecycle": 8},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(sample{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// steady returns samples of a scheduler whose resource use doesn't grow, modified by change: x goes from 0 to 1 over the part.
func steady(change func(s *sample, x float64)) part {
	p := part{name: "pods", limit: 4}
	const n = 120
	for i := range n {
		x := float64(i) / (n - 1)
		s := sample{
			heap: 100<<20 + float64(i%7)*(10<<20), rss: 300 << 20, goroutines: 400, scheduled: 10000 * x, created: 10000 * x,
			requests: map[string]float64{"POST": 25000 * x}, queues: map[string]float64{"q": float64(i % 3)},
		}
		change(&s, x)
		p.samples = append(p.samples, s)
	}
	return p
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(s *sample, x float64)
		want   string
	}{
		{name: "steady", change: func(*sample, float64) {}},
		{name: "grows while it fills, then no more", change: func(s *sample, x float64) { s.heap += min(x, 0.2) * (500 << 20) }},
		{name: "leaks a tenth of its heap in a minute", change: func(s *sample, x float64) { s.heap += x * (100 << 20) }, want: "the heap went from"},
		{name: "resident memory grows", change: func(s *sample, x float64) { s.rss += x * (400 << 20) }, want: "resident memory went from"},
		{name: "leaks goroutines", change: func(s *sample, x float64) { s.goroutines += 300 * x }, want: "the number of goroutines went from"},
		{name: "a queue grows", change: func(s *sample, x float64) { s.queues["q"] += 200 * x }, want: "queue q went from"},
		{name: "a burst in a queue", change: func(s *sample, x float64) {
			if x > 0.97 {
				s.queues["q"] += 1000
			}
		}},
		{name: "the last pods have come just now", change: func(s *sample, x float64) { s.created += 300 }},
		{name: "falls behind", change: func(s *sample, x float64) { s.scheduled *= 0.85; s.requests["POST"] *= 0.85 },
			want: "8500 pods were scheduled in the end, long after 9076 had been created"},
		{name: "too many requests", change: func(s *sample, x float64) { s.requests["PATCH"] = 20000 * x }, want: "a pod cost 4.50 requests, at most 4 are allowed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := strings.Join(steady(tc.change).judge(), "; ")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("judged %q, want %q", got, tc.want)
			}
		})
	}
}

func TestJudgeOfTheYardstick(t *testing.T) {
	p := steady(func(s *sample, x float64) { s.heap += x * (100 << 20); s.rss += x * (400 << 20) })
	p.yardstick = true
	if got := p.judge(); got != nil {
		t.Errorf("kube-scheduler's own memory is judged: %q", got)
	}
	p = steady(func(s *sample, x float64) { s.scheduled *= 0.85 })
	p.yardstick = true
	if got := p.judge(); len(got) != 1 {
		t.Errorf("kube-scheduler fell behind, and that is judged %q", got)
	}
}

func TestTable(t *testing.T) {
	var out strings.Builder
	table(&out, []part{steady(func(*sample, float64) {})})
	for _, want := range []string{"10000 of 10000", "100 MiB -> 100 MiB", "400 -> 400", "2.50", "POST 2.50"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
}

func TestSettings(t *testing.T) {
	t.Setenv("SOAK_NODES", "20")
	t.Setenv("SOAK_MINUTES", "0.5")
	s, err := readSettings()
	if err != nil || s.nodes != 20 || s.lasts != 30*time.Second || s.perSec != 50 {
		t.Errorf("%+v, %v", s, err)
	}
	for name, value := range map[string]string{"SOAK_MINUTES": "0", "SOAK_NODES": "many", "SOAK_PODS_PER_SECOND": "-1"} {
		t.Run(fmt.Sprintf("%s=%s", name, value), func(t *testing.T) {
			t.Setenv(name, value)
			if _, err := readSettings(); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestDue(t *testing.T) {
	stream := &load{perSec: 50, life: time.Minute}
	bursts := &load{perSec: 1, life: time.Minute, bursts: true}
	for _, tc := range []struct {
		l     *load
		since time.Duration
		want  int
	}{
		{stream, -time.Second, 0}, {stream, 0, 0}, {stream, 10 * time.Second, 500},
		{bursts, -time.Second, 0}, {bursts, 0, 60}, {bursts, 119 * time.Second, 60}, {bursts, 2 * time.Minute, 120},
	} {
		if got := tc.l.due(tc.since); got != tc.want {
			t.Errorf("after %s %d pods were due (bursts %v), want %d", tc.since, got, tc.l.bursts, tc.want)
		}
	}
}
