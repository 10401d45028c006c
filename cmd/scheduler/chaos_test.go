//go:build chaos

package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

var (
	histories = flag.Int("chaos.histories", 2, "how many histories to run")
	firstSeed = flag.Uint64("chaos.seed", 1, "seed of the first")
	chaosLogs = flag.String("chaos.logs", "", "folder for the product's logs, one file per history")
)

// Everything that can break breaks around the whole scheduler, under virtual time; see test/chaos. make chaos runs many.
func TestChaos(t *testing.T) {
	logNothing(t)
	var mu sync.Mutex
	total := &chaos.Report{Faults: map[string]int{}}
	slowest := time.Duration(0)
	t.Run("histories", func(t *testing.T) {
		for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				var log io.Writer
				if *chaosLogs != "" {
					f, err := os.Create(filepath.Join(*chaosLogs, fmt.Sprint(seed, ".log")))
					if err != nil {
						t.Fatal(err)
					}
					defer f.Close()
					log = f
				}
				r := chaos.Run(t, seed, hosted, log)
				if len(r.Violations) > 0 {
					t.Errorf("seed %d: %s\nwhat happened:\n%s", seed, strings.Join(r.Violations, "\n"), strings.Join(r.Film, "\n"))
				}
				mu.Lock()
				defer mu.Unlock()
				for kind, n := range r.Faults {
					total.Faults[kind] += n
				}
				total.Steps += r.Steps
				total.Launches += r.Launches
				total.Pods += r.Pods
				slowest = max(slowest, r.Settled)
			})
		}
	})
	t.Logf("%d histories, %d steps looked at, %d pods, %d instances launched; slowest to agree after the faults: %s", *histories, total.Steps, total.Pods, total.Launches, slowest)
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(total.Faults)) {
		t.Logf("%6d  %s", total.Faults[kind], kind)
		sum += total.Faults[kind]
	}
	t.Logf("%6d  faults in all", sum)
	if sum == 0 {
		t.Error("nothing was broken")
	}
}

// logNothing silences what is not logged by way of a context.
func logNothing(t *testing.T) {
	t.Helper()
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	klog.SetOutput(io.Discard)
}
