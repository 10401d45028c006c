package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/livecluster"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// clusterFlags say which cluster is looked at, and what the answer assumes.
type clusterFlags struct {
	kube     *kubeFlags
	existing []string
	catalog  string
	config   string
	patience time.Duration
	// zones and memoryOverhead are the settings of offline plans; only 'dovetail plan' has flags for them.
	zones          []string
	memoryOverhead float64
	// lease: it is read when the scheduler has last renewed its Lease.
	lease bool
	// quiet: warnings are returned as notes and not printed, because the command draws on the terminal.
	quiet bool
	// kept is the reader of the last look, nil if that failed.
	kept *livecluster.Reader
}

func newClusterFlags() clusterFlags {
	return clusterFlags{kube: &kubeFlags{}, catalog: builtinCatalog, memoryOverhead: defaultMemoryOverhead}
}

// add adds all of these flags.
func (f *clusterFlags) add(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringArrayVar(&f.existing, "existing", nil, "look at this file instead of a cluster, as 'kubectl get ... -A -o json' prints one (docs/why.md)")
	flags.StringVar(&f.catalog, "catalog", builtinCatalog, "instance types and prices: builtin, with prices of us-west-2 in 2026, those of spot estimated, or a file that 'dovetail catalog' wrote")
	flags.StringVar(&f.config, "config", "", "the scheduler's configuration (default: that of the ConfigMap dovetail-scheduler, if you may read it)")
	flags.DurationVar(&f.patience, "patience", 10*time.Second, "how long to look for a single change that would help a pod")
	f.kube.add(flags, true)
}

// reader returns a reader of the cluster that kubeconfig and flags name. It is the same one, with one client, until a look fails: then the kubeconfig
// may have changed.
func (f *clusterFlags) reader() (*livecluster.Reader, error) {
	if f.kept != nil {
		return f.kept, nil
	}
	config, err := f.kube.loader().ClientConfig()
	if err != nil {
		return nil, f.kube.problem(err)
	}
	f.kept, err = livecluster.New(config)
	return f.kept, err
}

// namespace returns the namespace that -n or the context names.
func (f *clusterFlags) namespace() string {
	if n := f.kube.overrides.Context.Namespace; n != "" {
		return n
	}
	if len(f.existing) == 0 {
		if n, _, err := f.kube.loader().Namespace(); err == nil && n != "" {
			return n
		}
	}
	return "default"
}

// about is the object whose events are read.
type about struct{ namespace, kind, name string }

// seen is a cluster that was looked at.
type seen struct {
	*explain.Cluster
	prices *aws.Offline
	notes  []string
}

// look reads the cluster, or the file in its place, and adds the manifests that input names.
func (f *clusterFlags) look(ctx context.Context, cmd *cobra.Command, input manifest.Options, of ...about) (*seen, error) {
	if !f.quiet {
		defer progressOf(cmd).doing("Reading the cluster")()
	}
	snapshot := &livecluster.Snapshot{}
	installed := ""
	if len(f.existing) == 0 {
		reader, err := f.reader()
		if err != nil {
			return nil, err
		}
		if snapshot, err = reader.Read(ctx); err != nil {
			f.kept = nil
			return nil, err
		}
		for _, o := range of {
			reader.Events(ctx, snapshot, o.namespace, o.kind, o.name)
		}
		if f.config == "" {
			installed = reader.SchedulerConfig(ctx)
		}
	}
	out := &seen{}
	if f.quiet {
		out.notes = snapshot.Warnings
	} else {
		warn(cmd, snapshot.Warnings)
	}
	input.Existing, input.Cluster, input.Stdin, input.Definitions = f.existing, snapshot.Listings, cmd.InOrStdin(), definitions
	set, err := manifest.Read(input)
	if err != nil {
		return nil, err
	}
	settings := offline.Settings{NodeClass: ofAnyone(), Legacy: nodeclass.Legacy{}, Clock: clock.RealClock{}, Plan: capacity.Options{Effort: effortOf(defaultBudget)}}
	sizes := aws.OfflineConfig{VMMemoryOverheadPercent: f.memoryOverhead}
	config, err := f.schedulerConfig(installed)
	switch {
	case err != nil && f.config == "": // the cluster can be looked at all the same
		out.notes = append(out.notes, fmt.Sprintf("the ConfigMap with the scheduler's configuration is invalid, so that its settings have their defaults (--config names another): %s", objects.OneLine(err.Error())))
	case err != nil:
		return nil, err
	case config != nil:
		config.apply(&settings)
		sizes = config.sizes()
	default:
		out.notes = append(out.notes, "the scheduler's configuration isn't known, so that its settings have their defaults (--config names it)")
	}
	if err := out.price(cmd, f, set, sizes); err != nil {
		return nil, err
	}
	settings.Catalog = out.prices
	now := settings.Clock.Now()
	if len(f.existing) > 0 {
		now = explain.Newest(set)
	}
	settings.Unread = snapshot.Unread
	out.Cluster = explain.New(set, settings, out.prices, now, f.patience)
	for _, file := range f.existing {
		out.Source = strings.TrimSpace(out.Source + " --existing " + file)
	}
	if out.Evictions, err = newEvictions(set); err != nil {
		return nil, fmt.Errorf("reading PodDisruptionBudgets: %w", err)
	}
	if f.lease && len(f.existing) == 0 && config != nil && config.lease.Name != "" {
		renewed, err := f.kept.Renewed(ctx, config.lease.Namespace, config.lease.Name)
		if err != nil {
			warn(cmd, []string{err.Error()})
		}
		if !renewed.IsZero() {
			out.Lease = &explain.Lease{Name: config.lease.String(), Renewed: renewed}
		}
	}
	return out, nil
}

// price reads the catalogue for the region of a set, and notes what is wrong with its prices there.
func (s *seen) price(cmd *cobra.Command, f *clusterFlags, set *manifest.Set, sizes aws.OfflineConfig) (err error) {
	region, zones := whereabouts(set)
	if region == "" {
		region = regionOf(f.zones)
	}
	if region == regionOf(f.zones) { // subnets in zones without nodes
		zones = slices.Compact(slices.Sorted(slices.Values(slices.Concat(zones, f.zones))))
	}
	sizes.Zones = f.zones
	of := ""
	if s.prices, of, err = readCatalog(f.catalog, region, zones, sizes); err != nil {
		return err
	}
	switch {
	case f.catalog == builtinCatalog:
		s.notes = append(s.notes, "prices are those of us-west-2 in 2026, and those of spot instances in each zone are estimates; for those of your region: dovetail catalog, and --catalog FILE")
	case region != "" && of != "" && region != of:
		text := fmt.Sprintf("--catalog %s: the catalogue is of %s, the nodes are in %s: nothing can be bought there by it, and the nodes' prices are unknown or wrong. For one of that region: dovetail catalog --region %s", f.catalog, of, region, region)
		if f.quiet {
			s.notes = append(s.notes, text)
		} else {
			warn(cmd, []string{text})
		}
	}
	return nil
}

// schedulerConfig reads the file of --config, or the text that is installed; nil: neither is known.
func (f *clusterFlags) schedulerConfig(installed string) (*schedulerConfig, error) {
	switch {
	case f.config != "":
		config, err := readConfig(f.config)
		if err != nil {
			return nil, fmt.Errorf("--config %s: %w", f.config, err)
		}
		return config, nil
	case installed != "":
		return parseConfig([]byte(installed))
	}
	return nil, nil
}

// whereabouts returns region and zones of a cluster's nodes and classes; empty: not known.
func whereabouts(set *manifest.Set) (region string, zones []string) {
	found := map[string]bool{}
	for _, n := range manifest.All[*corev1.Node](set) {
		if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
			found[zone] = true
		}
		if r := n.Labels[corev1.LabelTopologyRegion]; region == "" {
			region = r
		}
	}
	for _, nc := range manifest.All[*ec2nc.EC2NodeClass](set) {
		for _, s := range nc.Status.Subnets {
			found[s.Zone] = true
		}
	}
	zones = slices.Sorted(maps.Keys(found))
	if region == "" {
		region = regionOf(zones)
	}
	return region, zones
}

// errNoName is the error of a command that needs the name of an object.
var errNoName = errors.New("the object's name is missing")

func exactlyOne(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return usageError{errNoName}
	}
	return usageError{fmt.Errorf("%q is an unexpected argument: one object at a time", args[1])}
}
