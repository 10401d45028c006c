package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// settings come from the command line and the environment.
type settings struct {
	sandbox   bool
	pods      int
	catalog   string  // file; empty: the simulator's own table
	speed     float64 // boot and shutdown delays are divided by it
	deadline  time.Duration
	verbosity int // of the scheduler's log
}

func readSettings() (settings, error) {
	s := settings{pods: 300, speed: 10, deadline: 30 * time.Minute, verbosity: 2}
	flag.BoolVar(&s.sandbox, "sandbox", false, "leave the cluster running until ctrl-C")
	flag.Parse()
	s.catalog = os.Getenv("DEMO_CATALOG")
	var err error
	if v := os.Getenv("DEMO_PODS"); v != "" {
		if s.pods, err = strconv.Atoi(v); err != nil || s.pods < 20 || s.pods > 5000 {
			return s, fmt.Errorf("DEMO_PODS=%s: want a number from 20 to 5000", v)
		}
	}
	if v := os.Getenv("DEMO_SPEED"); v != "" {
		if s.speed, err = strconv.ParseFloat(v, 64); err != nil || s.speed < 0.1 || s.speed > 1000 {
			return s, fmt.Errorf("DEMO_SPEED=%s: want a number from 0.1 to 1000", v)
		}
	}
	if v := os.Getenv("DEMO_DEADLINE"); v != "" {
		if s.deadline, err = time.ParseDuration(v); err != nil || s.deadline <= 0 {
			return s, fmt.Errorf("DEMO_DEADLINE=%s: want a duration like 30m", v)
		}
	}
	if v := os.Getenv("DEMO_V"); v != "" {
		if s.verbosity, err = strconv.Atoi(v); err != nil || s.verbosity < 1 || s.verbosity > 10 {
			return s, fmt.Errorf("DEMO_V=%s: want a number from 1 to 10", v)
		}
	}
	return s, nil
}

func main() {
	set, err := readSettings()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if !set.sandbox {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, set.deadline, fmt.Errorf("the whole demo took longer than DEMO_DEADLINE=%s", set.deadline))
		defer cancel()
	}
	st := newStage(os.Stdout)
	run, name := runDemo, "demo"
	if set.sandbox {
		run, name = runSandbox, "sandbox"
	}
	if err := run(ctx, st, set); err != nil {
		st.endLine()
		if interrupted(ctx) {
			fmt.Fprintf(os.Stderr, "\n%s: interrupted; everything has ended\n", name)
			os.Exit(130)
		}
		fmt.Fprintf(os.Stderr, "\n%s failed: %v\n", name, err)
		os.Exit(1)
	}
}

// interrupted reports whether ctx was canceled by ctrl-C, as opposed to its deadline.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }
