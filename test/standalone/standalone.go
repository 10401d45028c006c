// Package standalone is what make soak, make peer and make neighbour have in common: programs that start a cluster, say how far they are,
// and leave their logs behind if they fail.
package standalone

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

// Main runs a program in a temporary directory, which remains if it fails, and exits: with 0, 1 for an error, 130 after ctrl-C. Run stops
// all that it has started before it returns. Libraries log to NAME.log in that directory.
func Main(name string, run func(ctx context.Context, dir string) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := inDirectory(ctx, name, run)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintf(os.Stderr, "\n%s: interrupted; everything has ended\n", name)
		os.Exit(130)
	default:
		fmt.Fprintf(os.Stderr, "\n%s failed: %v\n", name, err)
		os.Exit(1)
	}
}

// Say prints one line of progress.
func Say(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format("15:04:05"), fmt.Sprintf(format, args...))
}

func inDirectory(ctx context.Context, name string, run func(ctx context.Context, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "dovetail-"+name+"-")
	if err != nil {
		return fmt.Errorf("making a directory for logs: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\nlogs: %s", err, dir)
			return
		}
		err = os.RemoveAll(dir)
	}()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := logTo(log); err != nil {
		return err
	}
	return run(ctx, dir)
}

// logTo redirects the logs of libraries, the simulator and its kubelets, so that they don't disturb the progress output.
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
