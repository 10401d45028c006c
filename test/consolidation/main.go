// Command consolidation compares the product's consolidation with Karpenter's, emulated, in clusters without an API server.
//
//	go run ./test/consolidation repack   # clusters that have lost 30 to 60 % of their pods
//	go run ./test/consolidation day      # simulated days; -others: also with pods that another scheduler places
//	go run ./test/consolidation scores   # simulated days in which kube-scheduler places pods, by different scores
//
// It prints tables in Markdown, and ratios in the last lines (docs/performance.md explains them).
package main

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("consolidation", flag.ContinueOnError)
	small := flags.Bool("small", false, "repack: only clusters of 500 nodes; day: only the first seed")
	only := flags.String("only", "", "day: only the load of this name; scores: only the way to score of this name")
	seed := flags.Uint64("seed", 1, "day: the first of five seeds; repack: which pods are lost; scores: the seed")
	large := flags.Bool("large", false, "scores: two hours with 5,000 nodes, not a day with 300")
	empty := flags.Bool("empty", false, "scores: nothing is consolidated but empty nodes")
	others := flags.Bool("others", false, "day: also with pods that kube-scheduler places by its default scores, and that we therefore don't move")
	if err := flags.Parse(args[min(1, len(args)):]); err != nil {
		return err
	}
	switch {
	case len(args) > 0 && args[0] == "repack":
		return repack(out, *small, *seed)
	case len(args) > 0 && args[0] == "day":
		return days(out, &dayOptions{small: *small, others: *others, only: *only, first: *seed})
	case len(args) > 0 && args[0] == "scores":
		return scores(out, *large, *empty, *only, *seed)
	}
	return fmt.Errorf("usage: consolidation repack|day|scores [flags]")
}

// parallel calls f for 0 to n-1, on all processors, and returns the first error.
func parallel(n int, f func(i int) error) error {
	var group sync.WaitGroup
	var once sync.Once
	var first error
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		turns <- struct{}{}
		group.Go(func() {
			if err := f(i); err != nil {
				once.Do(func() { first = err })
			}
			<-turns
		})
	}
	group.Wait()
	return first
}

// mean is a geometric mean.
type mean struct {
	logs float64
	n    int
}

func (m *mean) add(x float64) { m.logs, m.n = m.logs+math.Log(x), m.n+1 }

func (m *mean) value() float64 { return math.Exp(m.logs / float64(max(1, m.n))) }

// cpu returns the CPU time that this process has used on all cores.
func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0 // can't fail for the process itself
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
