package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// runOnCluster plans on a live cluster, or on one that was written to a file.
func (f *planFlags) runOnCluster(cmd *cobra.Command) error {
	flags := newClusterFlags()
	flags.kube, flags.existing, flags.config, flags.zones, flags.memoryOverhead = f.kube, f.existing, f.config, f.zones, f.memoryOverhead
	flags.catalog = cmp.Or(f.catalog, builtinCatalog)
	c, err := flags.look(cmd.Context(), cmd, manifest.Options{Manifests: slices.Concat(f.manifests, f.pools), DefaultPool: f.defaultPool, Namespace: f.namespace})
	if err != nil {
		return err
	}
	set := c.After()
	var gone *whatif.Gone
	if len(f.without) > 0 {
		if set, gone, err = whatif.Without(set, f.without); err != nil {
			return fmt.Errorf("--without: %w", err)
		}
	}
	settings := c.Settings
	settings.Plan.Effort, settings.Explain, settings.NoVerify = effortOf(f.budget), f.explain, f.noVerify
	settings.Plan.IgnorePreferences = settings.Plan.IgnorePreferences || f.ignorePreferences
	report, err := offline.Plan(cmd.Context(), set, settings)
	if errors.Is(err, offline.ErrNoPool) {
		return fmt.Errorf("%w: the cluster has none; add one with --pool FILE, or take --default-pool", err)
	}
	if err != nil {
		warn(cmd, set.Warnings)
		return err
	}
	warn(cmd, report.Warnings)
	report.Reserved = c.Reserved()
	if gone != nil {
		settings.Explain = ""
		now, err := offline.Plan(cmd.Context(), c.After(), settings)
		if err != nil {
			return err
		}
		report.Without = withoutOf(gone, c.Price)
		report.Without.InsteadPerHour = report.TotalPerHour - now.TotalPerHour
	}
	report.Assumed = append(report.Assumed, c.notes...)
	if err := f.print(cmd, report); err != nil {
		return err
	}
	if f.output == "table" {
		for _, note := range c.notes {
			cmd.PrintErrf("Note: %s\n", note)
		}
	}
	if len(report.Refused) > 0 {
		return errRefused
	}
	return nil
}

// withoutOf returns what is gone, with what it costs.
func withoutOf(gone *whatif.Gone, price func(map[string]string) (float64, bool)) *offline.Without {
	out := &offline.Without{Moved: len(gone.Moved)}
	for _, n := range gone.Nodes {
		out.Nodes = append(out.Nodes, n.Name)
		p, _ := price(n.Labels)
		out.PerHour += p
	}
	for _, pod := range gone.Lost {
		out.Lost = append(out.Lost, offline.PodName{Namespace: pod.Namespace, Name: pod.Name})
	}
	return out
}
