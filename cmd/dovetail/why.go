package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

const whyHelp = `Say why a pod waits, why a node is kept or what is done with it, and what a pool does.

It reads the cluster with your own rights and changes nothing. What would be bought is planned by the scheduler's
own planner, and verified by its own filters, on what was read.`

const whyExamples = `  # Why does this pod wait, and what alone would help it?
  dovetail why pod web-0 -n shop

  # Why is this node still there?
  dovetail why node ip-10-0-1-5.ec2.internal

  # Why does this pool launch nothing?
  dovetail why nodepool default

  # As a plugin of kubectl.
  kubectl dovetail why pod web-0 -n shop`

func whyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "why", Short: "Why a pod waits, a node is kept, a pool launches nothing", Long: whyHelp, Example: whyExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("%q: must be pod, node or nodepool", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError{fmt.Errorf("must be followed by pod, node or nodepool")}
		},
	}
	cmd.AddCommand(whyPodCommand(), whyNodeCommand(), whyNodePoolCommand())
	return cmd
}

// whyFlags are the flags of each subcommand: pod, node and nodepool.
type whyFlags struct {
	clusterFlags
	output string
}

func (f *whyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.output, "output", "o", "text", "text, json or yaml")
	f.clusterFlags.add(flags)
}

func (f *whyFlags) check() error {
	switch f.output {
	case "text", "json", "yaml":
		return nil
	}
	return usageError{fmt.Errorf("-o %s: must be text, json or yaml", f.output)}
}

// print writes an answer, and in its notes what it assumes.
func (f *whyFlags) print(cmd *cobra.Command, a *explain.Answer, notes []string) error {
	a.Notes = append(a.Notes, notes...)
	var text []byte
	var err error
	switch f.output {
	case "json":
		text, err = json.MarshalIndent(a, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(a)
	default:
		return a.Write(cmd.OutOrStdout())
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

func whyPodCommand() *cobra.Command {
	f := &whyFlags{clusterFlags: newClusterFlags()}
	cmd := &cobra.Command{
		Use: "pod NAME", Aliases: []string{"pods", "po"}, Short: "What a pod waits for, and what alone would help it", Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			namespace, name := f.namespace(), args[0]
			if before, after, ok := strings.Cut(name, "/"); ok {
				namespace, name = before, after
			}
			f.lease = true
			c, err := f.look(cmd.Context(), cmd, manifest.Options{}, about{namespace, "Pod", name})
			if err != nil {
				return err
			}
			a, err := c.Pod(cmd.Context(), namespace, name)
			if err != nil {
				return err
			}
			notes := c.notes
			switch a.Kind {
			case explain.PodRefused, explain.PodBuys, explain.PodFits: // others don't depend on a plan
			default:
				notes = nil
			}
			return f.print(cmd, a, notes)
		},
	}
	f.add(cmd)
	return cmd
}

func whyNodeCommand() *cobra.Command {
	f := &whyFlags{clusterFlags: newClusterFlags()}
	cmd := &cobra.Command{
		Use: "node NAME", Aliases: []string{"nodes", "no"}, Short: "Why a node is kept, or what is done with it", Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			c, err := f.look(cmd.Context(), cmd, manifest.Options{}, about{"", "Node", args[0]}, about{"", "NodeClaim", ""})
			if err != nil {
				return err
			}
			a, err := c.Node(args[0])
			if err != nil {
				return err
			}
			return f.print(cmd, a, nil)
		},
	}
	f.add(cmd)
	return cmd
}

func whyNodePoolCommand() *cobra.Command {
	f := &whyFlags{clusterFlags: newClusterFlags()}
	cmd := &cobra.Command{
		Use: "nodepool NAME", Aliases: []string{"nodepools", "pool"}, Short: "What a pool does: conditions, limits, cost, why its nodes are kept", Args: exactlyOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			c, err := f.look(cmd.Context(), cmd, manifest.Options{}, about{"", "NodePool", args[0]})
			if err != nil {
				return err
			}
			a, err := c.NodePool(args[0])
			if err != nil {
				return err
			}
			return f.print(cmd, a, nil)
		},
	}
	f.add(cmd)
	return cmd
}
