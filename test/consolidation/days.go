package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/day"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// seeds is how many seeds each load is run with.
const seeds = 5

// sums are the figures of several days: the product's and the emulation's.
type sums struct{ ours, karpenter day.Tally }

func (s *sums) add(o *sums) {
	for _, x := range []struct{ to, from *day.Tally }{{&s.ours, &o.ours}, {&s.karpenter, &o.karpenter}} {
		x.to.Cost += x.from.Cost
		x.to.Evictions += x.from.Evictions
		x.to.Launches += x.from.Launches
		x.to.FlapVCPUs += x.from.FlapVCPUs
		x.to.Young += x.from.Young
	}
}

func days(out io.Writer, small bool, only string, first uint64) error {
	var loads []day.Load
	for _, l := range day.Loads {
		if only == "" || only == l.Name {
			loads = append(loads, l)
		}
	}
	if len(loads) == 0 {
		return fmt.Errorf("no load %q", only)
	}
	count := seeds
	if small {
		count = 1
	}
	results := make([]sums, len(loads)*count)
	err := parallel(2*len(results), func(i int) (err error) {
		r, l, seed := &results[i/2], loads[i/2/count], first+uint64(i/2%count)
		w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), cluster.DayMultiply, l.Spot)
		if err != nil {
			return err
		}
		if i%2 == 0 {
			r.ours, err = day.Run(w, l, seed, day.NewProduct(consolidation.DefaultPolicy()))
		} else {
			r.karpenter, err = day.Run(w, l, seed, day.NewKarpenter(false, seed))
		}
		if err != nil {
			err = fmt.Errorf("%s, seed %d: %w", l.Name, seed, err)
		}
		return err
	})
	if err != nil {
		return err
	}
	var names []string
	var withCron []bool
	for i := range results {
		l := loads[i/count]
		names = append(names, fmt.Sprintf("%s, %d", l.Name, first+uint64(i%count)))
		withCron = append(withCron, l.Cron > 0)
	}
	reportDays(out, names, results, withCron)
	return nil
}

// reportDays prints a table with a row per day, and the ratios of sums over the days with cron jobs and over the others.
func reportDays(out io.Writer, names []string, results []sums, withCron []bool) {
	fmt.Fprintln(out, "| load, seed | emulation: $, cost/bound, evictions, launches, ended by moves (young), flaps in vCPUs | ours | ours to the emulation's |")
	fmt.Fprintln(out, "| --- | --- | --- | --- |")
	var with, without sums
	for i := range results {
		r := &results[i]
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", names[i], row(&r.karpenter), row(&r.ours), r.ratios(", "))
		if withCron[i] {
			with.add(r)
		} else {
			without.add(r)
		}
	}
	fmt.Fprintf(out, "day-cron: %s young %d\n", with.ratios(" "), with.ours.Young)
	fmt.Fprintf(out, "day-plain: %s young %d\n", without.ratios(" "), without.ours.Young)
}

func row(t *day.Tally) string {
	return fmt.Sprintf("%.0f, %.3f, %d, %d, %d (%d), %.0f", t.Cost, t.Cost/t.Bound, t.Evictions, t.Launches, t.Ended, t.Young, t.FlapVCPUs)
}

func (s *sums) ratios(separator string) string {
	o, k := &s.ours, &s.karpenter
	return strings.Join([]string{
		fmt.Sprintf("cost %.3f", o.Cost/k.Cost),
		fmt.Sprintf("evictions %.3f", float64(o.Evictions)/float64(k.Evictions)),
		fmt.Sprintf("launches %.3f", float64(o.Launches)/float64(k.Launches)),
		fmt.Sprintf("flaps %.3f", o.FlapVCPUs/k.FlapVCPUs),
	}, separator)
}
