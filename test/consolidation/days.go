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
	fmt.Fprintln(out, "| load, seed | emulation: $, cost/bound, evictions, launches, ended (young), flaps | ours | to the emulation: cost, evictions, launches, flaps |")
	fmt.Fprintln(out, "| --- | --- | --- | --- |")
	var with, without sums
	for i := range results {
		r, l := &results[i], loads[i/count]
		fmt.Fprintf(out, "| %s, %d | %s | %s | %s |\n", l.Name, first+uint64(i%count), row(&r.karpenter), row(&r.ours), r.ratios(", "))
		if l.Cron > 0 {
			with.add(r)
		} else {
			without.add(r)
		}
	}
	for _, x := range []struct {
		name string
		s    *sums
	}{{"day-cron", &with}, {"day-plain", &without}} {
		fmt.Fprintf(out, "%s: %s young %d\n", x.name, x.s.ratios(" "), x.s.ours.Young)
	}
	return nil
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
