package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

// Bounds of the design for the random worlds, of each one and of their mean.
const (
	worldsWorst, worldsMean = 1.05, 1.012
	// bestShare of the best plan that a minute finds counts as a bound where no lower one is proven.
	bestShare = 0.98
	perSecond = 1_000_000 // effort
)

// judged is a world with what its plan at the default effort costs, beside what is known of the least cost.
type judged struct {
	*workload.Workload
	view              *capacity.View
	cost, bound, best float64 // best is 0 until it was looked for
}

func (j *judged) ratio() float64 { return j.cost / max(j.bound, bestShare*j.best) }

// worlds measures the default effort in random worlds, compared with max(bound, 0.98 of the best plan of so many seconds). That plan is looked for where
// it may matter: in the worlds farthest from the bound, until the rest meets the design's bounds anyway.
func worlds(out io.Writer, c *catalog.Catalog, n, seconds int, s settings) error {
	all := make([]*judged, n)
	var running errgroup.Group
	running.SetLimit(runtime.GOMAXPROCS(0))
	for i, w := range workload.Worlds(n) {
		running.Go(func() error {
			view, err := w.View(c)
			if err != nil {
				return err
			}
			plan := planner.Decide(view, capacity.Options{Effort: provisioning.DefaultEffort})
			if len(plan.Refused) > 0 {
				return fmt.Errorf("world %s: %d classes refused, the first: %s", w.Name, len(plan.Refused), plan.Refused[0].Message)
			}
			most := planner.Decide(view, capacity.Options{Effort: s.boundEffort})
			all[i] = &judged{Workload: w, view: view, cost: plan.CostPerHour, bound: most.LowerBound, best: min(most.CostPerHour, plan.CostPerHour)}
			return nil
		})
	}
	if err := running.Wait(); err != nil {
		return err
	}
	slices.SortStableFunc(all, func(a, b *judged) int { return cmp.Compare(b.ratio(), a.ratio()) })
	for looked := 0; looked < n && seconds > 0; {
		if _, mean := sum(all); all[looked].ratio() <= worldsWorst && mean <= worldsMean {
			break
		}
		part := all[looked:min(n, looked+runtime.GOMAXPROCS(0))]
		for _, j := range part {
			running.Go(func() error {
				j.best = min(j.best, planner.Decide(j.view, capacity.Options{Effort: seconds * perSecond}).CostPerHour)
				return nil
			})
		}
		if err := running.Wait(); err != nil {
			return err
		}
		looked += len(part)
	}
	return report(out, all)
}

// sum returns the worst ratio and the geometric mean.
func sum(all []*judged) (worst, mean float64) {
	logs := 0.0
	for _, j := range all {
		worst, logs = max(worst, j.ratio()), logs+math.Log(j.ratio())
	}
	return worst, math.Exp(logs / float64(len(all)))
}

func report(out io.Writer, all []*judged) error {
	families := map[string][]*judged{}
	for _, j := range all {
		name := j.Name[:strings.LastIndexByte(j.Name, '-')]
		families[name] = append(families[name], j)
	}
	slices.SortStableFunc(all, func(a, b *judged) int { return cmp.Compare(b.ratio(), a.ratio()) })
	fmt.Fprintln(out, "| world | pods | classes | bound $/h | best $/h | cost $/h | ratio |\n| --- | --- | --- | --- | --- | --- | --- |")
	for _, j := range all[:min(len(all), 20)] {
		fmt.Fprintf(out, "| %s | %d | %d | %.2f | %.2f | %.2f | %.4f |\n", j.Name, j.Pods, len(j.Groups), j.bound, j.best, j.cost, j.ratio())
	}
	fmt.Fprintln(out, "\n| family | mean | worst |\n| --- | --- | --- |")
	for _, f := range slices.SortedFunc(maps.Keys(families), func(a, b string) int {
		_, x := sum(families[a])
		_, y := sum(families[b])
		return cmp.Compare(y, x)
	}) {
		worst, mean := sum(families[f])
		fmt.Fprintf(out, "| %s | %.4f | %.4f |\n", f, mean, worst)
	}
	worst, mean := sum(all)
	fmt.Fprintf(out, "\nquality: worlds %d worst %.4f mean %.4f\n", len(all), worst, mean)
	if worst > worldsWorst || mean > worldsMean {
		return fmt.Errorf("the bounds are %v for the worst, %v for the mean", worldsWorst, worldsMean)
	}
	return nil
}
