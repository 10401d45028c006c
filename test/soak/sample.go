package main

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// sample holds a scheduler's metrics at one moment.
type sample struct {
	at         time.Time
	heap, rss  float64 // bytes; heap includes garbage that was not collected yet
	goroutines float64
	cpu        float64            // seconds
	requests   map[string]float64 // to the API server, by method
	scheduled  float64            // pods
	created    float64            // pods, by the load
	queues     map[string]float64 // lengths of the work queues and of the scheduling queue's parts, by name
}

// parse reads the text of /metrics.
func parse(text string, at time.Time) sample {
	s := sample{at: at, requests: map[string]float64{}, queues: map[string]float64{}}
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
		switch name {
		case "go_memstats_heap_alloc_bytes":
			s.heap = v
		case "process_resident_memory_bytes":
			s.rss = v
		case "go_goroutines":
			s.goroutines = v
		case "process_cpu_seconds_total":
			s.cpu = v
		case "rest_client_requests_total":
			s.requests[label(labels, "method")] += v
		case "scheduler_schedule_attempts_total":
			if label(labels, "result") == "scheduled" {
				s.scheduled += v
			}
		case "scheduler_pending_pods":
			s.queues["pods "+label(labels, "queue")] += v
		case "workqueue_depth":
			s.queues[label(labels, "name")] += v
		}
	}
	return s
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

func (s sample) allRequests() (n float64) {
	for _, v := range s.requests {
		n += v
	}
	return n
}

// quarter returns the samples of the nth quarter of a part, from 0.
func quarter(samples []sample, n int) []sample {
	return samples[n*len(samples)/4 : (n+1)*len(samples)/4]
}

// floor returns the minimum of the samples. For the heap, that approximates the memory in use, because garbage only adds to it.
func floor(samples []sample, of func(sample) float64) float64 {
	return slices.Min(values(samples, of))
}

func median(samples []sample, of func(sample) float64) float64 {
	v := values(samples, of)
	slices.Sort(v)
	return v[len(v)/2]
}

func values(samples []sample, of func(sample) float64) (out []float64) {
	for _, s := range samples {
		out = append(out, of(s))
	}
	return out
}

// queueNames returns the names of all queues in the samples.
func queueNames(samples []sample) []string {
	seen := map[string]bool{}
	for _, s := range samples {
		for name := range s.queues {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
