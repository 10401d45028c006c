package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dovetail-scheduler/dovetail/test/load"
)

// figure is a row of the table.
type figure struct {
	name string
	of   func(*point) float64
	show func(float64) string
	// linear is how it grows with the nodes if nothing is wrong, as an exponent: what all nodes take grows like their number, what a pod takes
	// doesn't grow. Rows without growth have NaN.
	linear float64
}

var figures = []figure{
	{"nodes", func(p *point) float64 { return float64(p.nodes) }, whole, math.NaN()},
	{"bound pods", func(p *point) float64 { return float64(p.pods) }, whole, math.NaN()},
	{"start until a pod is bound", func(p *point) float64 { return p.started.Seconds() }, seconds, 1},
	{"CPU time of that", func(p *point) float64 { return p.startCPU.Seconds() }, seconds, 1},
	{"heap in use then", func(p *point) float64 { return p.heap }, mib, 1},
	{"pod seen until seen bound, p50", func(p *point) float64 { return quantile(p.steady, 0.5) }, millis, 0},
	{"pod seen until seen bound, p99", func(p *point) float64 { return quantile(p.steady, 0.99) }, millis, 0},
	{"in the burst, p50", func(p *point) float64 { return quantile(p.bursting, 0.5) }, millis, 0},
	{"in the burst, p99", func(p *point) float64 { return quantile(p.bursting, 0.99) }, millis, 0},
	{"scheduling attempt (histogram), p50", func(p *point) float64 { return p.attempts.Quantile(0.5) }, millis, 0},
	{"scheduling attempt (histogram), p99", func(p *point) float64 { return p.attempts.Quantile(0.99) }, millis, 0},
	{"CPU time per pod", func(p *point) float64 { return p.cpu }, millis, 0},
	{"requests per pod", func(p *point) float64 { return p.requests }, twoDigits, 0},
	{"burst until all are bound", func(p *point) float64 { return p.burst.Seconds() }, seconds, 1},
	{"instances for the burst", func(p *point) float64 { return float64(p.machines) }, whole, math.NaN()},
	{"planning for the burst, in all", func(p *point) float64 { return p.planning.Sum }, millis, 1},
	{"verification of that", func(p *point) float64 { return p.verifying.Sum }, millis, 1},
	{"a look for nodes to end, mean", func(p *point) float64 { return p.evaluations.Mean() }, millis, 1},
	{"resident in the end", func(p *point) float64 { return p.resident }, mib, 1},
	{"resident at most", func(p *point) float64 { return p.peak }, mib, 1},
}

// report prints all that was measured, and one line in the end.
func report(out io.Writer, parts []*part, problems int) {
	for _, p := range parts {
		p.print(out)
	}
	fmt.Fprintf(out, "scale: %s problems %d\n", strings.Join(summaries(parts), " "), problems)
}

// done returns the points at which everything was measured.
func (p *part) done() []*point {
	return slices.DeleteFunc(slices.Clone(p.points), func(at *point) bool { return at.peak == 0 })
}

func (p *part) print(out io.Writer) {
	points := p.done()
	if len(points) == 0 {
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, p.name, strings.Repeat("\t", len(points)))
	if len(points) > 1 {
		fmt.Fprint(table, "\tgrows as nodes to the")
	}
	fmt.Fprintln(table)
	var fast []string
	for _, f := range figures {
		fmt.Fprint(table, f.name)
		for _, at := range points {
			fmt.Fprint(table, "\t", f.show(f.of(at)))
		}
		if len(points) > 1 && !math.IsNaN(f.linear) {
			e := exponent(points[0], points[len(points)-1], f.of)
			fmt.Fprintf(table, "\t%.2f", e)
			if e > f.linear+margin {
				fast = append(fast, fmt.Sprintf("%s (%.2f, want at most %g)", f.name, e, f.linear))
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // standard output
	fmt.Fprintf(out, "heap per node %s, per pod %s; /metrics with all series %s, read in %s, at the smallest size\n", kib(p.weights.perNode), kib(p.weights.perPod),
		mib(p.weights.metrics), seconds(p.weights.metricsFor.Seconds()))
	for _, c := range p.changes {
		fmt.Fprintf(out, "leader %s: first pod bound after %s, all that waited after %s; the new leader used %s of CPU time, and its memory went from %s to %s\n",
			c.how, seconds(c.first.Seconds()), seconds(c.all.Seconds()), seconds(c.cpu.Seconds()), mib(c.standby), mib(c.leading))
	}
	for _, one := range fast {
		fmt.Fprintf(out, "grows faster: %s\n", one)
	}
	fmt.Fprintln(out)
}

// margin is by how much an exponent varies anyway.
const margin = 0.15

// exponent returns e where a figure grows as nodes to the e-th power.
func exponent(a, b *point, of func(*point) float64) float64 {
	return math.Log(of(b)/of(a)) / math.Log(float64(b.nodes)/float64(a.nodes))
}

// summaries are the most important figures of each part's largest size.
func summaries(parts []*part) (out []string) {
	for _, p := range parts {
		points := p.done()
		if len(points) == 0 {
			out = append(out, p.name+" failed")
			continue
		}
		at := points[len(points)-1]
		out = append(out, fmt.Sprintf("%s nodes %d p50Millis %.1f p99Millis %.1f planMillis %.0f residentMiB %.0f cpuMillisPerPod %.2f requestsPerPod %.2f", p.name, at.nodes,
			1000*quantile(at.steady, 0.5), 1000*quantile(at.steady, 0.99), 1000*at.planning.Sum, at.peak/(1<<20), 1000*at.cpu, at.requests))
		for _, c := range p.changes {
			out = append(out, fmt.Sprintf("%sSeconds %.1f", c.how, c.first.Seconds()))
		}
	}
	return out
}

// quantile returns a quantile of the times from seen to bound, in seconds. Pods that were never bound took longer than any other.
func quantile(of []load.Binding, q float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	var times []float64
	for _, b := range of {
		if b.Bound.IsZero() {
			times = append(times, math.Inf(1))
			continue
		}
		times = append(times, b.Bound.Sub(b.Seen).Seconds())
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}

func whole(v float64) string     { return fmt.Sprintf("%.0f", v) }
func twoDigits(v float64) string { return fmt.Sprintf("%.2f", v) }
func seconds(v float64) string   { return fmt.Sprintf("%.1f s", v) }
func millis(v float64) string    { return fmt.Sprintf("%.1f ms", 1000*v) }
func mib(v float64) string       { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }
func kib(v float64) string       { return fmt.Sprintf("%.1f KiB", v/(1<<10)) }
