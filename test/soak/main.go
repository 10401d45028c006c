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
)

func main() {
	set, err := readSettings()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, set); err != nil {
		if errors.Is(ctx.Err(), context.Canceled) {
			fmt.Fprintln(os.Stderr, "\nsoak: interrupted; everything has ended")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, "\nsoak failed:", err)
		os.Exit(1)
	}
}

// run runs the three parts and prints the table; it returns an error if one of them fails.
func run(ctx context.Context, set settings) (err error) {
	dir, err := os.MkdirTemp("", "dovetail-soak-")
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
	log, err := os.Create(filepath.Join(dir, "soak.log"))
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	if err := logTo(log); err != nil {
		return err
	}
	s, err := begin(ctx, set, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	parts, err := s.parts(ctx)
	if err != nil {
		return err
	}
	fmt.Println()
	table(os.Stdout, parts)
	var problems []error
	for _, p := range parts {
		for _, problem := range p.judge() {
			problems = append(problems, fmt.Errorf("%s: %s", p.name, problem))
		}
	}
	if len(problems) == 0 {
		fmt.Println("\nall of it holds")
	}
	return errors.Join(problems...)
}

// logTo redirects the logs of libraries, the simulator and its kubelets, so that they don't disturb the progress output.
func logTo(w io.Writer) error {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
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
