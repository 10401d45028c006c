package main

import (
	"fmt"
	"io"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/day"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/scheduler"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"

	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// scorings are the ways to score nodes that are compared, the first one being what the others are compared with.
var scorings = []struct {
	name string
	scheduler.Scoring
}{
	{"MostAllocated", scheduler.Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 1, BalancedWeight: 1}},
	{"LeastAllocated", scheduler.Upstream},
	{"PreferKeptNodes, weight 10", scheduler.Scoring{Strategy: schedulerapi.LeastAllocated, FitWeight: 1, BalancedWeight: 1, Kept: 10}},
	{"MostAllocated, weight 10, unbalanced", scheduler.Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 10}},
	{"PreferKeptNodes, weight 3", scheduler.Scoring{Strategy: schedulerapi.LeastAllocated, FitWeight: 1, BalancedWeight: 1, Kept: 3}},
	{"MostAllocated, weight 10", scheduler.Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 10, BalancedWeight: 1}},
	{"PreferKeptNodes, weight 10, MostAllocated", scheduler.Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 1, BalancedWeight: 1, Kept: 10}},
	{"MostAllocated, unbalanced", scheduler.Scoring{Strategy: schedulerapi.MostAllocated, FitWeight: 1}},
}

// scoreLoad is the load of both benchmarks.
var scoreLoad = day.Load{Name: "cron and roll-outs", Cron: 0.15, RollOuts: true}

// The numbers of pods that give about 300 and 5,000 nodes.
const (
	dayMultiply   = 0.4
	largeMultiply = 8.5
)

// scores prints a row per way to score nodes: of a day with about 300 nodes, or two hours with about 5,000, at the time of day when the load
// shrinks fastest. only is the name of one of them.
func scores(out io.Writer, large, empty bool, only string, seed uint64) error {
	policy, multiply := consolidation.DefaultPolicy(), dayMultiply
	if empty {
		policy.Consolidate = consolidation.WhenEmpty
	}
	if large {
		multiply = largeMultiply
	}
	fmt.Fprintln(out, "| seed | scores | $ | to MostAllocated | evictions | launches | ended by moves | peak nodes | CPU s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	first := 0.0
	for i := range scorings {
		s := &scorings[i]
		if only != "" && only != s.name {
			continue
		}
		w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), multiply, false)
		if err != nil {
			return err
		}
		side, end, err := day.NewScored(w, policy, s.Scoring)
		if err != nil {
			return err
		}
		begun := cpu()
		var t day.Tally
		if large {
			t, err = day.RunHours(w, scoreLoad, seed, side, 18, 2)
		} else {
			t, err = day.Run(w, scoreLoad, seed, side)
		}
		end()
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if first == 0 {
			first = t.Cost
		}
		fmt.Fprintf(out, "| %d | %s | %.2f | %.3f | %d | %d | %d | %d | %.0f |\n", seed, s.name, t.Cost, t.Cost/first, t.Evictions, t.Launches, t.Ended, t.PeakNodes,
			(cpu() - begun).Round(time.Second).Seconds())
	}
	return nil
}
