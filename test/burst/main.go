package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// options are the flags.
type options struct {
	sizes, rates []int
	only         string
	pairs, lone  int
	judge        bool
	ours         side
	baseline     side
}

func main() {
	o, err := readFlags()
	if err != nil {
		fmt.Fprintln(os.Stderr, "burst:", err)
		os.Exit(2)
	}
	standalone.Main("burst", func(ctx context.Context, dir string) error { return o.run(ctx, dir) })
}

func readFlags() (*options, error) {
	o := &options{ours: side{name: "ours", settings: map[string]any{}}, baseline: side{name: "baseline"}}
	sizes := flag.String("pods", "100,300", "sizes of the bursts with mixed shapes, separated by commas")
	rates := flag.String("rates", "25,100,500", "how many requests per second the controllers may make, separated by commas")
	flag.StringVar(&o.only, "only", "", "only bursts whose name contains one of these texts, separated by commas")
	flag.IntVar(&o.pairs, "pairs", 1, "how often each burst is run, with the baseline in turns")
	flag.IntVar(&o.lone, "lone", 3, "how often a pod comes alone")
	flag.BoolVar(&o.judge, "judge", true, "fail if figures are beyond their bounds (docs/performance.md)")
	flag.StringVar(&o.ours.binary, "binary", "", "the scheduler (default: built from this tree)")
	flag.StringVar(&o.baseline.binary, "baseline", "", "a scheduler to compare with (default: none)")
	flag.StringVar(&o.ours.logs, "logs", "", "folder for the schedulers' logs (default: they are kept only if something fails)")
	set := flag.String("set", "", "fields of Provision's arguments, as name=value, separated by commas; not for the baseline")
	flag.DurationVar(&o.ours.latency, "fleet-latency", time.Second, "how long CreateFleet takes, on average")
	flag.Parse()
	var err error
	if o.sizes, err = numbers(*sizes); err != nil {
		return nil, fmt.Errorf("-pods: %w", err)
	}
	if o.rates, err = numbers(*rates); err != nil {
		return nil, fmt.Errorf("-rates: %w", err)
	}
	for _, pair := range strings.FieldsFunc(*set, func(r rune) bool { return r == ',' }) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, fmt.Errorf("-set: %q is not name=value", pair)
		}
		o.ours.settings[name] = value
	}
	o.baseline.latency, o.baseline.logs = o.ours.latency, o.ours.logs
	return o, nil
}

func numbers(text string) (out []int, err error) {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is not a positive number", one)
		}
		out = append(out, n)
	}
	return out, nil
}

// run runs all bursts, prints what came of them, and fails if that isn't what it should be.
func (o *options) run(ctx context.Context, dir string) error {
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	if _, err := cluster.Build(ctx, cluster.ControlPlane); err != nil {
		return err
	}
	if o.ours.binary == "" {
		path, err := cluster.Build(ctx, cluster.Scheduler)
		if err != nil {
			return err
		}
		o.ours.binary = path
	}
	r := &report{compared: o.baseline.binary != ""}
	all, left := arrivals(o.sizes, o.rates)
	if len(left) > 0 {
		standalone.Say("left out, because the pods would arrive for more than %d seconds: %s", arriving, strings.Join(left, ", "))
	}
	for _, a := range selected(all, o.only) {
		one := result{arrival: a}
		var err error
		if one.planned, err = planned(ctx, dir, &a); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
		for range o.pairs {
			if err := o.pair(ctx, dir, &one); err != nil {
				return err
			}
		}
		r.results = append(r.results, one)
		one.say()
	}
	r.lone.arrival = lone()
	for range o.lone {
		if err := o.pair(ctx, dir, &r.lone); err != nil {
			return err
		}
	}
	r.lone.sayDecided()
	v := r.judge(o.judge)
	fmt.Println()
	r.print(os.Stdout, v)
	return v.err()
}

// pair runs a burst, and once more with the baseline, if there is one.
func (o *options) pair(ctx context.Context, dir string, r *result) error {
	ours, err := o.once(ctx, dir, &o.ours, &r.arrival, len(r.ours))
	if err != nil {
		return err
	}
	r.ours = append(r.ours, ours)
	if o.baseline.binary == "" {
		return nil
	}
	theirs, err := o.once(ctx, dir, &o.baseline, &r.arrival, len(r.baseline))
	if err != nil {
		return err
	}
	r.baseline = append(r.baseline, theirs)
	return nil
}

// once is a run in a folder of its own, which remains if the run fails or instances have ended in it; before is how many there were of it.
func (o *options) once(ctx context.Context, dir string, s *side, a *arrival, before int) (outcome, error) {
	own := filepath.Join(dir, fmt.Sprintf("%s-%s-%d", a.name, s.name, before+1))
	out, err := s.run(ctx, own, a)
	if err != nil {
		return out, fmt.Errorf("%s, %s: %w", a.name, s.name, err)
	}
	if out.ended > 0 {
		return out, nil
	}
	if err := os.RemoveAll(own); err != nil {
		return out, fmt.Errorf("removing the folder of a run: %w", err)
	}
	return out, nil
}
