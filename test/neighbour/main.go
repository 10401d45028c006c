package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

const (
	// patience bounds everything but the builds and the holds, atMost each wait until nodes and pods are at rest.
	patience = 20 * time.Minute
	atMost   = 4 * time.Minute
)

func main() {
	binary := flag.String("karpenter", filepath.Join("bin", "karpenter-aws"), "karpenter-provider-aws's main")
	hold := flag.Duration("hold", 30*time.Minute, "for how long Karpenter has the nodes, and must leave them as they are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *binary, *hold); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			fmt.Fprintln(os.Stderr, "\nneighbour: interrupted; everything has ended")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "\nneighbour failed:", err)
		os.Exit(1)
	}
}

// run runs the story in a temporary directory, which remains if it fails.
func run(ctx context.Context, binary string, hold time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "dovetail-neighbour-")
	if err != nil {
		return fmt.Errorf("making a directory for logs: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nlogs: %s", err, dir)
			return
		}
		os.RemoveAll(dir)
	}()
	log, err := os.Create(filepath.Join(dir, "neighbour.log"))
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	if err := logTo(log); err != nil {
		return err
	}
	say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return err
		}
	}
	limit := patience + 2*hold
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	s, err := start(ctx, filepath.Join(dir, "cluster"), binary)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.story(ctx, hold); err != nil {
		return err
	}
	return errors.Join(s.faults...)
}

// logTo redirects the logs of libraries, so that they don't disturb the progress output.
func logTo(w io.Writer) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true", "v": "2"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting up logging: %w", err)
		}
	}
	klog.SetOutput(w)
	return nil
}

// say prints one line of progress.
func say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}
