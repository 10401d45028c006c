package main

import (
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/test/scrape"
)

// sample holds a scheduler's metrics at one moment, and how many pods the load had created then.
type sample struct {
	scrape.Sample
	created float64
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
		for name := range s.Queues {
			seen[name] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}
