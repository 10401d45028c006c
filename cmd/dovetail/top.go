package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

const topHelp = `Show what the cluster costs and holds: nodes with their price, what is requested, reserved for pods that are planned there,
and free; what the pods would cost at least; and the pods that wait, by reason.

On a terminal it goes on until you press q; into a pipe it prints one table. It reads the cluster with your own rights and
changes nothing. It works on clusters that run Karpenter, too.`

const topExamples = `  dovetail top
  dovetail top --once | grep spot`

func topCommand() *cobra.Command {
	f := newClusterFlags()
	once, noBound := false, false
	var interval time.Duration
	cmd := &cobra.Command{
		Use: "top", Short: "What the cluster costs and holds, live on a terminal", Long: topHelp, Example: topExamples, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < time.Second {
				return usageError{fmt.Errorf("--interval %s: must be at least 1s", interval)}
			}
			look := func(bound bool) (*explain.Overview, []string, error) {
				c, err := f.look(cmd.Context(), cmd, manifest.Options{})
				if err != nil {
					return nil, nil, err
				}
				o, err := c.Overview(cmd.Context())
				if err == nil && bound {
					err = c.AddBound(cmd.Context(), o)
				}
				return o, c.notes, err
			}
			if out, ok := cmd.OutOrStdout().(*os.File); ok && !once && len(f.existing) == 0 && term.IsTerminal(int(out.Fd())) {
				f.quiet = true
				return watch(cmd, look, interval, !noBound)
			}
			o, notes, err := look(!noBound)
			if err != nil {
				return err
			}
			if err := o.Write(cmd.OutOrStdout()); err != nil {
				return err
			}
			for _, note := range notes {
				cmd.PrintErrf("Note: %s\n", note)
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVar(&once, "once", false, "print one table, also on a terminal")
	flags.DurationVar(&interval, "interval", 5*time.Second, "how often to look on a terminal; on a large cluster or a busy machine less often, so that reading takes a tenth of the time at most, but half a minute after the last look at the latest")
	flags.BoolVar(&noBound, "no-bound", false, "don't work out what the pods would cost at least, which takes seconds on a large cluster")
	f.add(flags)
	if err := flags.MarkHidden("patience"); err != nil {
		panic(err) // the flag is there
	}
	return cmd
}
