// Command fidelity runs random worlds and reports whether everything happened as planned: a line per seed, and totals. It exits
// non-zero if it found a fault.
//
// It is not a benchmark: times are compressed, and worlds spend most of theirs waiting.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/worlds"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

func main() {
	klog.SetOutput(nothing{})
	klog.LogToStderr(false)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	many := worlds.Many{Tell: tell}
	seeds := flag.Uint64("seeds", 200, "the last seed")
	first := flag.Uint64("first", 1, "the first seed")
	one := flag.Uint64("seed", 0, "only the world of this seed, told step by step")
	small := flag.Bool("small", false, "small worlds, as in make test")
	flag.IntVar(&many.Side, "side", 2, "how many worlds side by side")
	flag.StringVar(&many.Dir, "dir", "", "keep control planes' files and schedulers' logs here")
	flag.StringVar(&many.Binary, "scheduler", "", "the scheduler to judge, instead of this tree's")
	flag.IntVar(&many.Verbosity, "v", 2, "verbosity of the schedulers' logs")
	flag.Parse()
	if many.Size = draw.Large; *small {
		many.Size = draw.Small
	}
	for s := *first; s <= *seeds; s++ {
		many.Seeds = append(many.Seeds, s)
	}
	if *one != 0 {
		many.Seeds = []uint64{*one}
		many.Tell = func(w *draw.World, r *worlds.Result) {
			r.Evidence.Tell(os.Stdout)
			tell(w, r)
		}
	} else if many.Dir != "" {
		many.Tell = func(w *draw.World, r *worlds.Result) {
			tell(w, r)
			if err := keep(w, r); err != nil {
				fmt.Println("  !", err)
			}
		}
	}
	began := time.Now()
	total, err := many.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d worlds in %v: %v\n", len(many.Seeds), time.Since(began).Round(time.Second), total)
	return worlds.Verdict(total)
}

func tell(w *draw.World, r *worlds.Result) {
	fmt.Printf("%v\n  %.1fs: %v\n", w, r.Took.Seconds(), &r.Report)
	for _, line := range append(r.Off, r.Problems()...) {
		fmt.Println("  !", line)
	}
	if r.Unsettled != "" {
		fmt.Println("  ! patience ended:", r.Unsettled)
	}
}

// keep writes what happened next to the scheduler's log.
func keep(w *draw.World, r *worlds.Result) error {
	f, err := os.Create(filepath.Join(filepath.Dir(r.Log), fmt.Sprintf("story-%d.log", w.Seed)))
	if err != nil {
		return err
	}
	r.Evidence.Tell(f)
	return f.Close()
}

// nothing discards the logs of client libraries.
type nothing struct{}

func (nothing) Write(p []byte) (int, error) { return len(p), nil }
