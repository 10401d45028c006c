package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/scrape"
)

// steady returns samples of a scheduler whose resource use doesn't grow, modified by change: x goes from 0 to 1 over the part.
func steady(change func(s *sample, x float64)) part {
	p := part{name: "pods", limit: 4}
	const n = 120
	for i := range n {
		x := float64(i) / (n - 1)
		s := sample{created: 10000 * x, Sample: scrape.Sample{
			Heap: 100<<20 + float64(i%7)*(10<<20), RSS: 300 << 20, Goroutines: 400, Scheduled: 10000 * x,
			Requests: map[string]float64{"POST": 25000 * x}, Queues: map[string]float64{"q": float64(i % 3)},
		}}
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
		{name: "grows while it fills, then no more", change: func(s *sample, x float64) { s.Heap += min(x, 0.2) * (500 << 20) }},
		{name: "leaks a tenth of its heap in a minute", change: func(s *sample, x float64) { s.Heap += x * (100 << 20) }, want: "the heap went from"},
		{name: "resident memory grows", change: func(s *sample, x float64) { s.RSS += x * (400 << 20) }, want: "resident memory went from"},
		{name: "leaks goroutines", change: func(s *sample, x float64) { s.Goroutines += 300 * x }, want: "the number of goroutines went from"},
		{name: "a queue grows", change: func(s *sample, x float64) { s.Queues["q"] += 200 * x }, want: "queue q went from"},
		{name: "a burst in a queue", change: func(s *sample, x float64) {
			if x > 0.97 {
				s.Queues["q"] += 1000
			}
		}},
		{name: "the last pods have come just now", change: func(s *sample, x float64) { s.created += 300 }},
		{name: "falls behind", change: func(s *sample, x float64) { s.Scheduled *= 0.85; s.Requests["POST"] *= 0.85 },
			want: "8500 pods were scheduled in the end, long after 9076 had been created"},
		{name: "too many requests", change: func(s *sample, x float64) { s.Requests["PATCH"] = 20000 * x }, want: "a pod cost 4.50 requests, at most 4 are allowed"},
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
	p := steady(func(s *sample, x float64) { s.Heap += x * (100 << 20); s.RSS += x * (400 << 20) })
	p.yardstick = true
	if got := p.judge(); got != nil {
		t.Errorf("kube-scheduler's own memory is judged: %q", got)
	}
	p = steady(func(s *sample, x float64) { s.Scheduled *= 0.85 })
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
