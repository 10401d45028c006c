package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// The bounds. Costs are ratios to one plan for all pods: that of all bursts together, and that of the worst burst.
const (
	mostCost, mostWorst = 1.02, 1.04
	// mostLonger is by how much a burst may take longer than with the baseline, in the median of the pairs.
	mostLonger = time.Second
	// mostLone bounds the median of the times from a lone pod's first failed cycle to CreateFleet.
	mostLone = 400 * time.Millisecond
	// enough is how many runs a time is judged by: one alone says more about what else the computer did.
	enough = 3
	// atOnce is within what time all Deployments of a burst have to exist.
	atOnce = 200 * time.Millisecond
)

// verdict is what is wrong with a report.
type verdict struct {
	// failures let the program fail: figures beyond their bounds, and instances that have ended.
	failures []string
	// late are bursts whose Deployments were not created at once. That is this computer's fault, so they don't let the program fail.
	late []string
	// unjudged are the figures that no bound was applied to, with the reason.
	unjudged []string
}

// judge compares the figures with their bounds, if that is wanted, and notes what makes them figures of something else.
func (r *report) judge(bounds bool) (v verdict) {
	for _, one := range append(slices.Clone(r.results), r.lone) {
		v.lookAt(&one)
	}
	if !bounds {
		v.unjudged = append(v.unjudged, "all figures (-judge=false)")
		return v
	}
	r.judgeCosts(&v)
	r.judgeTimes(&v)
	return v
}

func (v *verdict) lookAt(one *result) {
	if d := one.created(); d > atOnce {
		v.late = append(v.late, fmt.Sprintf("%s: creating its Deployments took up to %d ms, want at most %d; on this computer the figures are those of a slower burst",
			one.arrival.name, d.Milliseconds(), atOnce.Milliseconds()))
	}
	one.each(func(side string, n int, o *outcome) {
		if o.ended > 0 {
			v.failures = append(v.failures, fmt.Sprintf("%s, %s, run %d: %d instances have ended, although nothing disrupts them", one.arrival.name, side, n, o.ended))
		}
	})
}

func (r *report) judgeCosts(v *verdict) {
	mean, worst := r.costs(ours)
	if math.IsNaN(mean) {
		v.unjudged = append(v.unjudged, "costs (no burst was run)")
		return
	}
	if mean > mostCost {
		v.failures = append(v.failures, fmt.Sprintf("cost %.4f, want at most %.2f", mean, mostCost))
	}
	if worst > mostWorst {
		v.failures = append(v.failures, fmt.Sprintf("worst %.4f, want at most %.2f", worst, mostWorst))
	}
}

func (r *report) judgeTimes(v *verdict) {
	if lone := decisions(r.lone.ours); len(lone) < enough {
		v.unjudged = append(v.unjudged, fmt.Sprintf("lonePodMillis (%d lone pods, want %d)", len(lone), enough))
	} else if d := median(lone); d > mostLone {
		v.failures = append(v.failures, fmt.Sprintf("lonePodMillis %d, want at most %d", d.Milliseconds(), mostLone.Milliseconds()))
	}
	if !r.compared {
		v.unjudged = append(v.unjudged, "times of the bursts (no baseline)")
		return
	}
	for i := range r.results {
		one := &r.results[i]
		if n := len(one.baseline); n < enough {
			v.unjudged = append(v.unjudged, fmt.Sprintf("times of the bursts (%d pairs of each, want %d)", n, enough))
			return
		}
		if d := one.longer(); d > mostLonger {
			v.failures = append(v.failures, fmt.Sprintf("%s takes %.2f s longer than with the baseline, want at most %.2f", one.arrival.name, d.Seconds(), mostLonger.Seconds()))
		}
	}
}

// print prints a line for each.
func (v *verdict) print(out io.Writer) {
	for _, group := range []struct {
		what  string
		lines []string
	}{{"NOT AT ONCE", v.late}, {"WRONG", v.failures}, {"not judged", v.unjudged}} {
		for _, line := range group.lines {
			fmt.Fprintf(out, "%s: %s\n", group.what, line)
		}
	}
}

// err returns an error if the program is to fail.
func (v *verdict) err() error {
	if len(v.failures) == 0 {
		return nil
	}
	return errors.New(strings.Join(v.failures, "\n"))
}
