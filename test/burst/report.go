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

// ratios returns the costs of the runs as ratios to that of the plan: their geometric mean, and the worst of them.
func (r *result) ratios(runs []outcome) (mean, worst float64) {
	var of []float64
	for _, o := range runs {
		of = append(of, o.cost/r.planned)
	}
	return meanAndWorst(of)
}

// longer returns by how much the runs took longer than those of the baseline: the median of the pairs' differences.
func (r *result) longer() time.Duration {
	var of []time.Duration
	for i := range r.baseline {
		of = append(of, r.ours[i].bound-r.baseline[i].bound)
	}
	return median(of)
}

// each calls f with each run and its number, first those of ours.
func (r *result) each(f func(side string, n int, o *outcome)) {
	for i := range r.ours {
		f("ours", i+1, &r.ours[i])
	}
	for i := range r.baseline {
		f("baseline", i+1, &r.baseline[i])
	}
}

// created returns after what time all Deployments existed, in the run in which that took longest.
func (r *result) created() (most time.Duration) {
	r.each(func(_ string, _ int, o *outcome) { most = max(most, o.created) })
	return most
}

func times(runs []outcome) (out []time.Duration) {
	for _, o := range runs {
		out = append(out, o.bound)
	}
	return out
}

// decisions returns how long the runs took from the first failed cycle to CreateFleet.
func decisions(runs []outcome) (out []time.Duration) {
	for _, o := range runs {
		out = append(out, o.decided)
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

// sayDecided says when the first instance was launched in each run.
func (r *result) sayDecided() {
	r.each(func(side string, _ int, o *outcome) {
		standalone.Say("lone, %s: CreateFleet %s after the first failed cycle, bound after %s", side, o.decided.Round(time.Millisecond), o.bound.Round(time.Millisecond))
	})
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
	results  []result
	lone     result
	compared bool
}

// print prints a row per burst, what the verdict says, and the figures of all bursts together.
func (r *report) print(out io.Writer, v verdict) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "burst\tpods\tcreated ms\tone plan $/h\tcost\tworst run\tall bound s"
	if r.compared {
		head += "\tbaseline's cost\tworst run\tall bound s\tlonger s"
	}
	fmt.Fprintln(table, head)
	for i := range r.results {
		one := &r.results[i]
		line := []string{one.arrival.name, fmt.Sprint(one.arrival.pods()), fmt.Sprint(one.created().Milliseconds()), fmt.Sprintf("%.3f", one.planned)}
		line = append(line, one.columns(one.ours)...)
		if r.compared {
			line = append(append(line, one.columns(one.baseline)...), fmt.Sprintf("%+.1f", one.longer().Seconds()))
		}
		fmt.Fprintln(table, strings.Join(line, "\t"))
	}
	_ = table.Flush() // standard output
	v.print(out)
	if r.compared {
		fmt.Fprintf(out, "\nbaseline: %s\n", r.figures(func(one *result) []outcome { return one.baseline }))
	}
	fmt.Fprintf(out, "\nburst: %s\n", r.figures(ours))
}

// columns are what the table says of the runs of a side.
func (r *result) columns(runs []outcome) []string {
	mean, worst := r.ratios(runs)
	return []string{fmt.Sprintf("%.3f", mean), fmt.Sprintf("%.3f", worst), fmt.Sprintf("%.1f", median(times(runs)).Seconds())}
}

// ours are the runs of the scheduler that is judged.
func ours(r *result) []outcome { return r.ours }

// costs returns the geometric mean of the bursts' costs, and the worst of them: each is the mean of the burst's own runs.
func (r *report) costs(side func(*result) []outcome) (mean, worst float64) {
	var of []float64
	for i := range r.results {
		cost, _ := r.results[i].ratios(side(&r.results[i]))
		of = append(of, cost)
	}
	return meanAndWorst(of)
}

// figures are the costs of the bursts, as ratios, and the time that a lone pod takes.
func (r *report) figures(side func(*result) []outcome) string {
	mean, worst := r.costs(side)
	millis := "none"
	if lone := decisions(side(&r.lone)); len(lone) > 0 {
		millis = fmt.Sprint(median(lone).Milliseconds())
	}
	return fmt.Sprintf("cost %.3f worst %.3f lonePodMillis %s", mean, worst, millis)
}

// meanAndWorst returns the geometric mean and the maximum; NaN if there are no values.
func meanAndWorst(of []float64) (mean, worst float64) {
	if len(of) == 0 {
		return math.NaN(), math.NaN()
	}
	sum := 0.0
	for _, v := range of {
		sum += math.Log(v)
	}
	return math.Exp(sum / float64(len(of))), slices.Max(of)
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
