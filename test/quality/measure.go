package main

import (
	"fmt"
	"io"
	"math"
	"syscall"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

type settings struct {
	boundEffort int
	seconds     float64
}

// column is an amount of effort for which plans are measured.
type column struct {
	name   string
	effort func(pods int) int
}

var columns = []column{
	{"no effort", func(int) int { return 0 }},
	{"50 ms per 5,000 pods", func(pods int) int { return 10 * pods }},
	{"1 s", func(int) int { return 1_000_000 }},
}

// figure is the measurement of one plan.
type figure struct {
	ratio  float64
	millis float64 // of one core, including garbage collection
}

func measure(out io.Writer, c *catalog.Catalog, loads []*workload.Workload, bounds map[string]float64, s settings) error {
	fmt.Fprint(out, "| workload | pods | classes | bound $/h |")
	for _, col := range columns {
		fmt.Fprintf(out, " %s: cost/bound | ms | pods/s |", col.name)
	}
	fmt.Fprint(out, "\n| --- | --- | --- | --- |")
	for range columns {
		fmt.Fprint(out, " --- | --- | --- |")
	}
	fmt.Fprintln(out)
	logs, worst := make([]float64, len(columns)), make([]float64, len(columns))
	for _, w := range loads {
		view, err := w.View(c)
		if err != nil {
			return err
		}
		bound, given := bounds[w.Name]
		if !given {
			bound = planner.Decide(view, capacity.Options{Effort: s.boundEffort}).LowerBound
		}
		fmt.Fprintf(out, "| %s | %d | %d | %.2f |", w.Name, w.Pods, len(view.Demand), bound)
		for i, col := range columns {
			f, err := s.plan(w, view, bound, col.effort(w.Pods))
			if err != nil {
				return err
			}
			logs[i] += math.Log(f.ratio)
			worst[i] = max(worst[i], f.ratio)
			fmt.Fprintf(out, " %.4f | %.0f | %.0f |", f.ratio, f.millis, 1000*float64(w.Pods)/f.millis)
		}
		fmt.Fprintln(out)
	}
	for i, name := range []string{"geometric mean", "worst"} {
		fmt.Fprintf(out, "| %s | | | |", name)
		for j := range columns {
			v := worst[j]
			if i == 0 {
				v = math.Exp(logs[j] / float64(len(loads)))
			}
			fmt.Fprintf(out, " %.4f | | |", v)
		}
		fmt.Fprintln(out)
	}
	return nil
}

// plan measures a workload's plan: the fastest of several, because the slower ones were disturbed. The planner has its catalogue
// prepared, as in a running scheduler.
func (s settings) plan(w *workload.Workload, view *capacity.View, bound float64, effort int) (figure, error) {
	p := planner.New()
	opts := capacity.Options{Effort: effort}
	plan := p.Plan(view, opts)
	if len(plan.Refused) > 0 {
		return figure{}, fmt.Errorf("workload %s: %d classes refused, the first: %s", w.Name, len(plan.Refused), plan.Refused[0].Message)
	}
	best, start := time.Duration(math.MaxInt64), cpu()
	for best == math.MaxInt64 || (cpu()-start).Seconds() < s.seconds {
		before := cpu()
		plan = p.Plan(view, opts)
		best = min(best, cpu()-before)
	}
	return figure{ratio: plan.CostPerHour / bound, millis: 1000 * best.Seconds()}, nil
}

// cpu returns the CPU time that this process has used on all cores.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // can't fail for the process itself
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
