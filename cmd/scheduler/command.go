package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

// newCommand returns upstream's command around our setup: upstream keeps its options private, so the command is built here from the same
// exported parts.
func newCommand() *cobra.Command {
	opts := options.NewOptions()
	cmd := &cobra.Command{
		Use:   "dovetail-scheduler",
		Short: "A kube-scheduler that builds the node your pod is missing",
		Long: `dovetail-scheduler is kube-scheduler with two more plugins, Provision and Binder.
A pod that fits nowhere gets a node made for it. Flags and configuration are those
of kube-scheduler; see --config and the ProvisionArgs of the plugin.`,
		PersistentPreRunE: func(*cobra.Command, []string) error { return opts.ComponentGlobalsRegistry.Set() },
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
			if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
				return err
			}
			cliflag.PrintFlags(cmd.Flags())
			ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background()))
			defer cancel()
			stop := server.SetupSignalHandler()
			go func() {
				<-stop
				cancel()
			}()
			gates.(featuregate.MutableFeatureGate).AddMetrics()
			opts.ComponentGlobalsRegistry.AddMetrics()
			return run(ctx, opts)
		},
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if arg != "" {
					return fmt.Errorf("%q takes no arguments, got %q", cmd.CommandPath(), args)
				}
			}
			return nil
		},
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, f := range sets.FlagSets {
		cmd.Flags().AddFlagSet(f)
	}
	cols, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, cols)
	return cmd
}

// run builds the scheduler and Dovetail's controllers, and runs both until ctx ends.
func run(ctx context.Context, opts *options.Options) error {
	d := newDovetail()
	cc, sched, err := d.setup(ctx, opts)
	if err != nil {
		return err
	}
	build := version.Get()
	klog.FromContext(ctx).Info("Starting Dovetail", "version", build.Version, "kubernetesVersion", build.KubernetesVersion, "goVersion", build.GoVersion, "commit", build.Commit)
	if d.used() {
		return d.until(ctx, func(ctx context.Context) error {
			if err := d.introduce(ctx, cc, sched); err != nil {
				return err
			}
			return app.Run(ctx, cc, sched)
		})
	}
	fmt.Fprintln(os.Stderr, "No profile has Dovetail's plugins: running as a plain kube-scheduler")
	return app.Run(ctx, cc, sched)
}
