package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// runOnCluster plans on a live cluster, or on one that was written to a file.
func (f *planFlags) runOnCluster(cmd *cobra.Command) error {
	flags := newClusterFlags()
	flags.kube, flags.existing, flags.config, flags.zones, flags.memoryOverhead = f.kube, f.existing, f.config, f.zones, f.memoryOverhead
	flags.catalog = cmp.Or(f.catalog, builtinCatalog)
	if err := poolsIn(f.pools); err != nil {
		return err
	}
	c, err := flags.look(cmd.Context(), cmd, manifest.Options{Manifests: slices.Concat(f.manifests, f.pools), DefaultPool: f.defaultPool, Namespace: f.namespace})
	if err != nil {
		return err
	}
	defer progressOf(cmd).doing("Planning")()
	set := c.Plannable()
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
		return fmt.Errorf("%w: the cluster has none; add one with -f or --pool FILE, or take --default-pool", err)
	}
	if err != nil {
		warn(cmd, set.Warnings)
		return err
	}
	warn(cmd, report.Warnings)
	report.Reserved, report.Elsewhere = c.Reserved(), c.Elsewhere()
	if gone != nil {
		settings.Explain = ""
		now, err := offline.Plan(cmd.Context(), c.Plannable(), settings)
		if err != nil {
			return err
		}
		report.Without = withoutOf(gone, c.Price)
		report.Without.Compare(report, now, namesOf(gone.Moved))
		for _, n := range gone.Nodes {
			report.Without.Against = append(report.Without.Against, c.Against(n)...)
		}
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

// poolsIn returns an error that names a file of --pool in which there is no pool and no class, or a pod: then it was probably meant for -f.
func poolsIn(files []string) error {
	for _, file := range files {
		if file == "-" {
			continue // it can be read only once
		}
		set, err := manifest.Read(manifest.Options{Manifests: []string{file}, Definitions: definitions})
		if err != nil {
			return err
		}
		pools := len(manifest.All[*karpv1.NodePool](set)) + len(manifest.All[*ec2nc.EC2NodeClass](set)) + len(manifest.All[*legacy.Provisioner](set)) + len(manifest.All[*legacy.AWSNodeTemplate](set))
		if pods := len(set.Pods()); pools == 0 || pods > 0 {
			return fmt.Errorf("--pool %s: number of pods: %d, of NodePools and EC2NodeClasses: %d; --pool is for the latter, -f for the former", file, pods, pools)
		}
	}
	return nil
}

// withoutOf returns which nodes are left out of the plan, what they cost, and what becomes of their pods.
func withoutOf(gone *whatif.Gone, price func(map[string]string) (float64, bool)) *offline.Without {
	out := &offline.Without{Moved: len(gone.Moved)}
	for _, n := range gone.Nodes {
		out.Nodes = append(out.Nodes, n.Name)
		p, known := price(n.Labels)
		if out.PerHour += p; !known {
			out.Unpriced++
		}
	}
	out.Lost = namesOf(gone.Lost)
	return out
}

func namesOf(pods []*corev1.Pod) (out []offline.PodName) {
	for _, pod := range pods {
		out = append(out, offline.PodName{Namespace: pod.Namespace, Name: pod.Name})
	}
	return out
}
