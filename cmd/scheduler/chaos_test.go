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
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

var (
	histories = flag.Int("chaos.histories", 20, "how many histories to run")
	firstSeed = flag.Uint64("chaos.seed", 1, "seed of the first")
	again     = flag.Int("chaos.again", 2, "how often a history that fails is run again before it counts: what a seed draws is the same, who is first isn't")
	longer    = flag.Duration("chaos.longer", 0, "how much longer lasting faults last, after all others have ended")
	chaosLogs = flag.String("chaos.logs", "", "folder for the product's logs, one file per history")
)

// enough histories to require that every kind of fault has happened, and a kill at every point of a launch and a termination.
const enough = 250

// slow is the limit above which a time is reported separately.
const slow = 30 * time.Minute

// Everything that can break breaks around the whole scheduler, under virtual time; see test/chaos. make chaos runs many histories.
func TestChaos(t *testing.T) {
	logNothing(t)
	var mu sync.Mutex
	total := &chaos.Report{Faults: map[string]int{}, Passed: map[string]int{}, Checks: map[string]int{}}
	slowest := time.Duration(0)
	failFast := flag.Lookup("test.failfast").Value.String() == "true" // which doesn't work for parallel tests that wait to be started
	var failed atomic.Bool
	t.Run("histories", func(t *testing.T) {
		for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if failFast && failed.Load() {
					return
				}
				r := chaos.Run(t, cluster.Scheme, seed, *longer, storming, productLog(t, seed))
				for tries := *again; tries > 0 && len(r.Violations) > 0; tries-- {
					t.Logf("seed %d, once more: %s", seed, strings.Join(r.Violations, "\n"))
					r = chaos.Run(t, cluster.Scheme, seed, *longer, storming, productLog(t, seed))
				}
				if len(r.Violations) > 0 {
					failed.Store(true)
					t.Errorf("seed %d: %s\nwhat happened:\n%s", seed, strings.Join(r.Violations, "\n"), strings.Join(r.Note, "\n"))
				}
				mu.Lock()
				defer mu.Unlock()
				add(total.Faults, r.Faults)
				add(total.Passed, r.Passed)
				add(total.Checks, r.Checks)
				total.Steps += r.Steps
				total.Launches += r.Launches
				total.Pods += r.Pods
				slowest = max(slowest, r.Settled)
				if r.Settled > slow {
					t.Logf("seed %d took %s to agree", seed, r.Settled)
				}
			})
		}
	})
	t.Logf("%d histories, %d steps looked at, %d pods, %d instances launched; slowest to agree after the faults: %s", *histories, total.Steps, total.Pods, total.Launches, slowest)
	t.Logf("judged:\n%s", table(total.Checks))
	t.Logf("points passed:\n%s", table(total.Passed))
	t.Logf("faults injected:\n%s", table(total.Faults))
	if *histories < enough {
		return
	}
	for _, kind := range append(chaos.Points(), chaos.Kinds()...) {
		if total.Faults[kind] == 0 {
			t.Errorf("%d histories, and never: %s", *histories, kind)
		}
	}
}

// productLog returns where the product logs to in the history of a seed; nil: nowhere.
func productLog(t *testing.T, seed uint64) io.Writer {
	t.Helper()
	if *chaosLogs == "" {
		return nil
	}
	f, err := os.Create(filepath.Join(*chaosLogs, fmt.Sprint(seed, ".log")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func add(to, more map[string]int) {
	for k, n := range more {
		to[k] += n
	}
}

// table returns a line per kind, and their sum.
func table(count map[string]int) string {
	var b strings.Builder
	sum := 0
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		fmt.Fprintf(&b, "%8d  %s\n", count[kind], kind)
		sum += count[kind]
	}
	fmt.Fprintf(&b, "%8d  in all", sum)
	return b.String()
}

// logNothing discards what is not logged through a context, for the duration of a test.
func logNothing(t *testing.T) {
	t.Helper()
	state := klog.CaptureState()
	t.Cleanup(state.Restore)
	silence()
}

func silence() {
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
}
