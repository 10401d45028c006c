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

// sums are the figures of several days: the product's, the emulation's, and the product's where another scheduler places pods.
type sums struct{ ours, karpenter, others day.Tally }

// dayOptions are the flags of days.
type dayOptions struct {
	small, others bool
	only          string
	first         uint64
}

func (s *sums) add(o *sums) {
	for _, x := range []struct{ to, from *day.Tally }{{&s.ours, &o.ours}, {&s.karpenter, &o.karpenter}, {&s.others, &o.others}} {
		x.to.Cost += x.from.Cost
		x.to.Evictions += x.from.Evictions
		x.to.Launches += x.from.Launches
		x.to.FlapVCPUs += x.from.FlapVCPUs
		x.to.Young += x.from.Young
	}
}

func days(out io.Writer, o *dayOptions) error {
	var loads []day.Load
	for _, l := range day.Loads {
		if o.only == "" || o.only == l.Name {
			loads = append(loads, l)
		}
	}
	if len(loads) == 0 {
		return fmt.Errorf("no load %q", o.only)
	}
	count := seeds
	if o.small {
		count = 1
	}
	results := make([]sums, len(loads)*count)
	sides := 2
	if o.others {
		sides = 3
	}
	err := parallel(sides*len(results), func(i int) (err error) {
		at, side := i/sides, i%sides
		r, l, seed := &results[at], loads[at/count], o.first+uint64(at%count)
		w, err := cluster.New(cluster.Deployments(), catalog.Builtin(), cluster.DayMultiply, l.Spot)
		if err != nil {
			return err
		}
		switch side {
		case 0:
			r.ours, err = day.Run(w, l, seed, day.NewProduct(consolidation.DefaultPolicy()))
		case 1:
			r.karpenter, err = day.Run(w, l, seed, day.NewKarpenter(false, seed))
		default:
			r.others, err = day.Run(w, l, seed, day.NewOthers)
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
		names = append(names, fmt.Sprintf("%s, %d", l.Name, o.first+uint64(i%count)))
		withCron = append(withCron, l.Cron > 0)
	}
	reportDays(out, names, results, withCron)
	if o.others {
		reportOthers(out, names, results, withCron)
	}
	return nil
}

// reportDays prints a table with a row per day, and the ratios of sums over the days with cron jobs and over the others.
func reportDays(out io.Writer, names []string, results []sums, withCron []bool) {
	fmt.Fprintln(out, "| load, seed | emulation: $, cost/bound, evictions, launches, ended by moves (young), flaps in vCPUs | ours | ours to the emulation's |")
	fmt.Fprintln(out, "| --- | --- | --- | --- |")
	var with, without sums
	for i := range results {
		r := &results[i]
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", names[i], row(&r.karpenter), row(&r.ours), r.ratios(&r.ours, ", "))
		if withCron[i] {
			with.add(r)
		} else {
			without.add(r)
		}
	}
	fmt.Fprintf(out, "day-cron: %s young %d\n", with.ratios(&with.ours, " "), with.ours.Young)
	fmt.Fprintf(out, "day-plain: %s young %d\n", without.ratios(&without.ours, " "), without.ours.Young)
}

// reportOthers prints the same for days in which another scheduler places the pods, and we keep their nodes.
func reportOthers(out io.Writer, names []string, results []sums, withCron []bool) {
	fmt.Fprintln(out, "\n| load, seed | another scheduler places pods: $, cost/bound, evictions, launches, ended by moves (young), flaps in vCPUs | to the emulation's |")
	fmt.Fprintln(out, "| --- | --- | --- |")
	var with, without sums
	for i := range results {
		r := &results[i]
		fmt.Fprintf(out, "| %s | %s | %s |\n", names[i], row(&r.others), r.ratios(&r.others, ", "))
		if withCron[i] {
			with.add(r)
		} else {
			without.add(r)
		}
	}
	fmt.Fprintf(out, "day-others: cron %s young %d\n", with.ratios(&with.others, " "), with.others.Young)
	fmt.Fprintf(out, "day-others: plain %s young %d\n", without.ratios(&without.others, " "), without.others.Young)
}

func row(t *day.Tally) string {
	return fmt.Sprintf("%.0f, %.3f, %d, %d, %d (%d), %.0f", t.Cost, t.Cost/t.Bound, t.Evictions, t.Launches, t.Ended, t.Young, t.FlapVCPUs)
}

// ratios are those of a side to the emulation.
func (s *sums) ratios(o *day.Tally, separator string) string {
	k := &s.karpenter
	return strings.Join([]string{
		fmt.Sprintf("cost %.3f", o.Cost/k.Cost),
		fmt.Sprintf("evictions %.3f", float64(o.Evictions)/float64(k.Evictions)),
		fmt.Sprintf("launches %.3f", float64(o.Launches)/float64(k.Launches)),
		fmt.Sprintf("flaps %.3f", o.FlapVCPUs/k.FlapVCPUs),
	}, separator)
}
