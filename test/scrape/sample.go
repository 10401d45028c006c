package scrape

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// Sample holds a scheduler's metrics at one moment.
type Sample struct {
	At         time.Time
	Heap, RSS  float64 // bytes; heap includes garbage that was not collected yet
	Goroutines float64
	CPU        float64            // seconds
	Requests   map[string]float64 // to the API server, by method
	Scheduled  float64            // pods
	Queues     map[string]float64 // lengths of the work queues and of the scheduling queue's parts, by name
	Histograms map[string]*Histogram
}

// Names of the histograms that a Sample has. Those with a phase end in a slash and its name.
const (
	// Attempts is how long a scheduling cycle with its binding took that ended with a node.
	Attempts = "scheduler_scheduling_attempt_duration_seconds"
	// Planning and Verifying are the phases of a plan for waiting pods.
	Planning, Verifying = planSeconds + "/plan", planSeconds + "/verify"
	// Evaluations is how long one look for nodes to end took, whatever the reason.
	Evaluations = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds"

	planSeconds = "dovetail_plan_duration_seconds"
)

// tries is how often a scheduler is asked that doesn't answer.
const tries = 5

// Look reads a scheduler's metrics. It tries again if there is no answer, because the host may be busy, unless the scheduler has exited.
func Look(ctx context.Context, scheduler *cluster.SchedulerProcess) (Sample, error) {
	for try := 1; ; try++ {
		text, err := scheduler.Get(ctx, "/metrics")
		if err == nil {
			return Parse(string(text), time.Now()), nil
		}
		if try == tries || ctx.Err() != nil || scheduler.Failed() != nil {
			return Sample{}, err
		}
	}
}

// Priced waits until a scheduler knows what instances cost: one that has just started reads the account.
func Priced(ctx context.Context, scheduler *cluster.SchedulerProcess, every time.Duration) error {
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		text, err := scheduler.Get(ctx, "/metrics")
		if err == nil && bytes.Contains(text, []byte("\nkarpenter_cloudprovider_instance_type_offering_price_estimate{")) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for prices: %w (last: %v)", context.Cause(ctx), err)
		case <-look.C:
		}
		if err := scheduler.Failed(); err != nil {
			return err
		}
	}
}

// Parse reads the text of /metrics.
func Parse(text string, at time.Time) Sample {
	s := Sample{At: at, Requests: map[string]float64{}, Queues: map[string]float64{}, Histograms: map[string]*Histogram{}}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			continue
		}
		name, labels, _ := strings.Cut(line[:space], "{")
		s.read(name, labels, v)
	}
	return s
}

func (s *Sample) read(name, labels string, v float64) {
	switch name {
	case "go_memstats_heap_alloc_bytes":
		s.Heap = v
	case "process_resident_memory_bytes":
		s.RSS = v
	case "go_goroutines":
		s.Goroutines = v
	case "process_cpu_seconds_total":
		s.CPU = v
	case "rest_client_requests_total":
		s.Requests[label(labels, "method")] += v
	case "scheduler_schedule_attempts_total":
		if label(labels, "result") == "scheduled" {
			s.Scheduled += v
		}
	case "scheduler_pending_pods":
		s.Queues["pods "+label(labels, "queue")] += v
	case "workqueue_depth":
		s.Queues[label(labels, "name")] += v
	default:
		s.readHistogram(name, labels, v)
	}
}

func (s *Sample) readHistogram(name, labels string, v float64) {
	whole, part := name, ""
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, end); ok {
			whole, part = base, end
		}
	}
	switch {
	case part == "":
		return
	case whole == planSeconds:
		whole += "/" + label(labels, "phase")
	case whole == Attempts && label(labels, "result") != "scheduled":
		return
	case whole != Attempts && whole != Evaluations:
		return
	}
	h := s.Histograms[whole]
	if h == nil {
		h = &Histogram{buckets: map[float64]float64{}}
		s.Histograms[whole] = h
	}
	switch part {
	case "_sum":
		h.Sum += v
	case "_count":
		h.Count += v
	default:
		if le, err := strconv.ParseFloat(label(labels, "le"), 64); err == nil {
			h.buckets[le] += v
		}
	}
}

// label returns the value of a label in the text between the braces.
func label(labels, name string) string {
	_, rest, ok := strings.Cut(","+labels, ","+name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// AllRequests returns the number of requests to the API server.
func (s *Sample) AllRequests() (n float64) {
	for _, v := range s.Requests {
		n += v
	}
	return n
}

// Since returns what a histogram has counted since an earlier sample.
func (s *Sample) Since(before *Sample, name string) *Histogram {
	out := &Histogram{buckets: map[float64]float64{}}
	out.add(s.Histograms[name], 1)
	out.add(before.Histograms[name], -1)
	return out
}
