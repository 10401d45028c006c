package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// result is what came of an arrival: the cost of one plan for all of its pods, and a run or several.
type result struct {
	arrival        arrival
	planned        float64
	ours, baseline []outcome
}

// ratio returns the cost of the runs as a ratio to that of the plan: their geometric mean.
func (r *result) ratio(runs []outcome) float64 {
	var of []float64
	for _, o := range runs {
		of = append(of, o.cost/r.planned)
	}
	return geometricMean(of)
}

// longer returns by how much the runs took longer than those of the baseline: the median of the pairs' differences.
func (r *result) longer() time.Duration {
	var of []time.Duration
	for i := range r.baseline {
		of = append(of, r.ours[i].bound-r.baseline[i].bound)
	}
	return median(of)
}

func times(runs []outcome) (out []time.Duration) {
	for _, o := range runs {
		out = append(out, o.bound)
	}
	return out
}

func (r *result) say() {
	text := fmt.Sprintf("%s: %d pods, $%.3f/h planned", r.arrival.name, r.arrival.pods(), r.planned)
	for i, o := range r.ours {
		text += ", ours " + o.text()
		if i < len(r.baseline) {
			text += ", baseline " + r.baseline[i].text()
		}
	}
	standalone.Say("%s", text)
}

func (o *outcome) text() string {
	ended := ""
	if o.ended > 0 {
		ended = fmt.Sprintf(", %d ended", o.ended)
	}
	return fmt.Sprintf("$%.3f/h (%d instances, %d requests%s) in %.1f s", o.cost, o.instances, o.fleets, ended, o.bound.Seconds())
}

// report is everything that is printed in the end.
type report struct {
	results            []result
	lone, loneBaseline []time.Duration
	compared           bool
}

func (r *report) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "burst\tpods\tone plan $/h\tcost\tall bound s"
	if r.compared {
		head += "\tbaseline's cost\tall bound s\tlonger s"
	}
	fmt.Fprintln(table, head)
	var ours, theirs []float64
	for i := range r.results {
		one := &r.results[i]
		ours = append(ours, one.ratio(one.ours))
		line := []string{one.arrival.name, fmt.Sprint(one.arrival.pods()), fmt.Sprintf("%.3f", one.planned), fmt.Sprintf("%.3f", ours[i]), fmt.Sprintf("%.1f", median(times(one.ours)).Seconds())}
		if r.compared {
			theirs = append(theirs, one.ratio(one.baseline))
			line = append(line, fmt.Sprintf("%.3f", theirs[i]), fmt.Sprintf("%.1f", median(times(one.baseline)).Seconds()), fmt.Sprintf("%+.1f", one.longer().Seconds()))
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	_ = table.Flush() // standard output
	if r.compared && len(theirs) > 0 {
		fmt.Fprintf(out, "\nbaseline: %s\n", figures(theirs, r.loneBaseline))
	}
	fmt.Fprintf(out, "\nburst: %s\n", figures(ours, r.lone))
}

// figures are the costs of the bursts, as ratios, and the time that a lone pod takes.
func figures(ratios []float64, lone []time.Duration) string {
	mean, worst := math.NaN(), math.NaN()
	if len(ratios) > 0 {
		mean, worst = geometricMean(ratios), slices.Max(ratios)
	}
	millis := "none"
	if len(lone) > 0 {
		millis = fmt.Sprint(median(lone).Milliseconds())
	}
	return fmt.Sprintf("cost %.3f worst %.3f lonePodMillis %s", mean, worst, millis)
}

func geometricMean(of []float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(of)))
}

func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
