// Command dovetail is the user's tool: it asks a cluster why a pod waits or a node is kept (why), shows what the cluster costs and holds (top, view),
// what would be bought for it or for manifests (plan), lets paused launches be tried again (retry), says what a region offers (catalog), turns the
// settings of an old Karpenter into ours (settings), and says which version it is (version). Called kubectl-dovetail it is a plugin of kubectl.
//
// It holds flags, help and exit codes; pkg/livecluster reads clusters, pkg/explain explains them, pkg/offline plans and pkg/aws reads catalogs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

// Exit codes, as docs/plan.md promises them.
const (
	exitOK      = 0
	exitFailed  = 1 // bad input, no catalog, no answer from AWS
	exitUsage   = 2 // unknown flags and the like
	exitRefused = 3 // there is a plan, but some pods are refused
)

func main() {
	// The scheduler's filters depend on the version, so plans do, too.
	if err := version.Report(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(exitFailed)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// The libraries log with klog. What a user must know is in the report, the warnings and the errors.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	root := &cobra.Command{
		Use:           "dovetail",
		Short:         "Why pods wait and nodes stay, and what Dovetail would buy",
		Version:       version.Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	if strings.HasPrefix(filepath.Base(os.Args[0]), "kubectl-") { // help names the command as the user knows it
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl dovetail"}
	}
	root.AddCommand(whyCommand(), topCommand(), viewCommand(), planCommand(), retryCommand(), catalogCommand(), settingsCommand(), versionCommand())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errRefused):
		return exitRefused
	case errors.As(err, &usage) || strings.HasPrefix(err.Error(), "unknown command"):
		root.PrintErrf("Error: %v\nSee '%s --help'.\n", err, called.CommandPath())
		return exitUsage
	}
	for _, one := range all(err) {
		root.PrintErrf("Error: %v\n", one)
	}
	return exitFailed
}

// usageError is a mistake on the command line.
type usageError struct{ error }

// errRefused: the plan was printed, but not every pod is in it.
var errRefused = errors.New("some pods are refused")

// all returns the parts of joined errors.
func all(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []error
		for _, one := range joined.Unwrap() {
			out = append(out, all(one)...)
		}
		return out
	}
	return []error{err}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if cmd.Flags().ShorthandLookup("f") != nil {
		hint = "; files are given with -f"
	}
	return usageError{fmt.Errorf("%q is an unexpected argument%s", args[0], hint)}
}
