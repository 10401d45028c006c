package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog/builtin"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

const planHelp = `Say which nodes Dovetail would buy for the pods of these manifests, what they cost, which pod
goes where, and why. It needs no cluster and no AWS account. With --from-cluster it says what would be bought for a
cluster, read with your own rights; that works where Karpenter runs, too. It changes nothing.

The plan is made by the scheduler's own planner and verified by kube-scheduler's own filters,
as it would be in a cluster. Workloads become the pods that their controllers would make.

Exit code: 0 every pod has room, 1 something is wrong with the input, 2 with the command line,
3 there is a plan, but some pods are refused.`

const planExamples = `  # Once, with AWS credentials: write down what the region offers.
  dovetail catalog --region eu-west-1 -o catalog.json

  # What would this application cost, on the NodePools in pools/?
  dovetail plan -f app/ -f pools/ --catalog catalog.json

  # Roughly, without an AWS account.
  dovetail plan -f app/ -f pools/ --catalog builtin

  # What will be bought for the pods that wait in my cluster? And if a node were gone, or with another pool?
  dovetail plan --from-cluster
  dovetail plan --from-cluster --without ip-10-0-1-5.ec2.internal
  dovetail plan --from-cluster --pool arm64-pool.yaml

  # From a chart, with a general-purpose NodePool, node by node.
  helm template my-app | dovetail plan -f - --default-pool --catalog catalog.json -o wide

  # What more would be bought in a cluster that runs already?
  kubectl get nodes,pods,nodepools,ec2nodeclasses,daemonsets,priorityclasses,storageclasses -A -o json > cluster.json
  dovetail plan -f app/ --existing cluster.json --catalog catalog.json

  # Why is that pod there? And fail a build when something fits nowhere or costs too much.
  dovetail plan -f app/ -f pools/ --catalog catalog.json --explain shop/web-6f7c8d9b5-1
  dovetail plan -f app/ -f pools/ --catalog catalog.json -o json | jq -e '.totalPerHour < 5'`

type planFlags struct {
	fromCluster         bool
	without, pools      []string
	kube                *kubeFlags
	manifests, existing []string
	catalog, namespace  string
	config              string
	zones               []string
	budget              time.Duration
	output, explain     string
	noVerify            bool
	defaultPool         bool
	ignorePreferences   bool
	memoryOverhead      float64
}

func planCommand() *cobra.Command {
	f := planFlags{kube: &kubeFlags{}}
	cmd := &cobra.Command{
		Use: "plan [-f FILE_OR_FOLDER...] [--from-cluster]", Short: "What would be bought for these manifests, or for a cluster", Long: planHelp, Example: planExamples,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.manifests, "filename", "f", nil, "file or folder with manifests, - for standard input; may be given several times")
	flags.StringVar(&f.catalog, "catalog", "", "instance types and prices: a file that 'dovetail catalog' wrote, or builtin, a table with prices of us-west-2 in 2026, those of spot estimated")
	flags.BoolVar(&f.fromCluster, "from-cluster", false, "plan for the pods that wait in the cluster of your kubeconfig, with its nodes and pools; --catalog is builtin then, if it isn't given")
	flags.StringArrayVar(&f.without, "without", nil, "plan as if this node were gone; may be given several times (with --from-cluster or --existing)")
	flags.StringArrayVar(&f.pools, "pool", nil, "plan as if this file's NodePools and EC2NodeClasses were there, in place of those of the same name (with --from-cluster or --existing)")
	flags.StringArrayVar(&f.existing, "existing", nil, "file with existing objects: nodes, pods and more, as 'kubectl get ... -A -o json' prints them")
	flags.BoolVar(&f.defaultPool, "default-pool", false, "add a NodePool for general use: c, m and r machines from generation 5 on, amd64, on demand")
	flags.StringVar(&f.config, "config", "", "the scheduler's configuration, for its profiles and the settings of Provision (default: as if it said nothing)")
	flags.StringSliceVar(&f.zones, "zones", nil, "zones with subnets, for node classes that don't know them yet (default: all of the catalogue)")
	flags.StringVarP(&f.output, "output", "o", "table", "table, wide (every node), json or yaml")
	flags.StringVar(&f.explain, "explain", "", "explain why this pod is where it is: NAME or NAMESPACE/NAME")
	flags.DurationVar(&f.budget, "budget", defaultBudget, "how long to look for a cheaper plan, on the machine it was calibrated on")
	flags.BoolVar(&f.noVerify, "no-verify", false, "don't verify the plan with the scheduler's filters")
	flags.BoolVar(&f.ignorePreferences, "ignore-preferences", false, "plan as with preferencePolicy Ignore")
	flags.Float64Var(&f.memoryOverhead, "vm-memory-overhead-percent", defaultMemoryOverhead, "share of memory that a machine's hypervisor and kernel take, as the scheduler's setting")
	flags.StringVarP(&f.namespace, "namespace", "n", "default", "namespace of objects that name none")
	f.kube.add(flags, false) // the plan's own -n has another meaning
	return cmd
}

func (f *planFlags) run(cmd *cobra.Command) error {
	if err := f.check(cmd.Flags().Changed); err != nil {
		return usageError{err}
	}
	if f.fromCluster || len(f.existing) > 0 {
		return f.runOnCluster(cmd)
	}
	settings := offline.Settings{
		NodeClass: ofAnyone(), Legacy: nodeclass.Legacy{},
		Plan:     capacity.Options{Effort: effortOf(f.budget), IgnorePreferences: f.ignorePreferences},
		NoVerify: f.noVerify, Explain: f.explain, Clock: clock.RealClock{},
	}
	sizes := aws.OfflineConfig{VMMemoryOverheadPercent: f.memoryOverhead}
	if f.config != "" {
		config, err := readConfig(f.config)
		if err != nil {
			return fmt.Errorf("--config %s: %w", f.config, err)
		}
		config.apply(&settings)
		sizes = config.sizes()
	}
	catalog, err := f.readCatalog(sizes)
	if err != nil {
		return err
	}
	settings.Catalog = catalog
	set, err := manifest.Read(manifest.Options{
		Manifests: f.manifests, DefaultPool: f.defaultPool, Namespace: f.namespace, Stdin: cmd.InOrStdin(), Definitions: definitions,
	})
	if err != nil {
		warn(cmd, set.Warnings)
		return err
	}
	report, err := offline.Plan(cmd.Context(), set, settings)
	if err != nil {
		warn(cmd, set.Warnings)
	} else {
		if report.Pods == 0 {
			report.Warnings = append(report.Warnings, "there are no pods to plan for in the input")
		}
		warn(cmd, report.Warnings)
	}
	if errors.Is(err, offline.ErrNoPool) {
		return fmt.Errorf("%w: add the cluster's NodePools and EC2NodeClasses with -f, or take --default-pool", err)
	}
	if err != nil {
		return err
	}
	if err := f.print(cmd, report); err != nil {
		return err
	}
	if len(report.Refused) > 0 {
		return errRefused
	}
	return nil
}

func warn(cmd *cobra.Command, warnings []string) {
	for _, w := range warnings {
		cmd.PrintErrf("Warning: %s\n", w)
	}
}

// check returns what is wrong with the flags; given reports whether a flag was given.
func (f *planFlags) check(given func(string) bool) error {
	switch f.output {
	case "table", "wide", "json", "yaml":
	default:
		return fmt.Errorf("-o %s: must be table, wide, json or yaml", f.output)
	}
	for _, flag := range []string{"ignore-preferences", "vm-memory-overhead-percent"} {
		if f.config != "" && given(flag) {
			return fmt.Errorf("--%s: it can't be combined with --config, which sets it", flag)
		}
	}
	switch {
	case f.fromCluster && len(f.existing) > 0:
		return errors.New("--existing: it can't be combined with --from-cluster: a cluster is read or its file is")
	case (len(f.without) > 0 || len(f.pools) > 0) && !f.fromCluster && len(f.existing) == 0:
		return errors.New("--without and --pool change a cluster: add --from-cluster, or --existing FILE")
	case len(f.manifests) == 0 && len(f.existing) == 0 && !f.fromCluster:
		return errors.New("nothing to plan for: give manifests with -f, or --from-cluster")
	case f.budget < 0:
		return fmt.Errorf("--budget %s: must not be negative", f.budget)
	case f.memoryOverhead < 0 || f.memoryOverhead >= 1:
		return fmt.Errorf("--vm-memory-overhead-percent %v: must be between 0 and 1", f.memoryOverhead)
	case f.catalog == "" && !f.fromCluster && len(f.without) == 0 && len(f.pools) == 0:
		return errNoCatalog
	}
	return nil
}

func (f *planFlags) readCatalog(sizes aws.OfflineConfig) (*aws.Offline, error) {
	sizes.Zones = f.zones
	region, zones := "", []string(nil)
	if region = regionOf(f.zones); region != "" {
		zones = f.zones
	}
	prepared, _, err := readCatalog(f.catalog, region, zones, sizes)
	return prepared, err
}

// errNoCatalog is the error of a plan that would have prices of an unknown region.
var errNoCatalog = errors.New("--catalog is required: prices and machines differ by region and day. " +
	"Write them down once with AWS credentials: dovetail catalog --region REGION -o catalog.json. " +
	"Or take --catalog builtin, a table with prices of us-west-2 in 2026")

// regionName matches the region in a zone's name: eu-central-1 in eu-central-1a, and us-west-2 in us-west-2-lax-1a.
var regionName = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+`)

// regionOf returns the region of the first of these zones; empty: not known.
func regionOf(zones []string) string {
	if len(zones) == 0 {
		return ""
	}
	return regionName.FindString(zones[0])
}

// builtinCatalog is the value of --catalog that stands for the table in pkg/aws/catalog/builtin.
const builtinCatalog = "builtin"

// readCatalog reads the file that --catalog names, or the built-in table for a region with these zones. of is the catalogue's region.
func readCatalog(name, region string, zones []string, sizes aws.OfflineConfig) (prepared *aws.Offline, of string, err error) {
	read, err := openCatalog(name, region, zones)
	if err != nil {
		return nil, "", err
	}
	if prepared, err = aws.NewOffline(read, sizes); err != nil {
		return nil, "", fmt.Errorf("--catalog %s: %w", name, err)
	}
	return prepared, read.Meta.Region, nil
}

func openCatalog(name, region string, zones []string) (*catalog.File, error) {
	if name == builtinCatalog {
		return builtin.Catalog(region, zones)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("--catalog: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	read, err := catalog.Read(file)
	if err != nil {
		return nil, fmt.Errorf("--catalog %s: %w", name, err)
	}
	return read, nil
}

func (f *planFlags) print(cmd *cobra.Command, r *offline.Report) error {
	out := cmd.OutOrStdout()
	switch {
	case f.output == "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	case f.output == "yaml":
		raw, err := yaml.Marshal(r)
		if err != nil {
			return err
		}
		_, err = out.Write(raw)
		return err
	case f.explain != "":
		return r.Explain(out)
	}
	return r.Table(out, f.output == "wide")
}

// ofAnyone returns the kind of node classes for which a node counts as managed, whichever Dovetail of the cluster has launched it.
func ofAnyone() cloudprovider.NodeClassKind {
	kind := nodeclass.Kind
	kind.ManagedBy = capacity.Anyone
	return kind
}
