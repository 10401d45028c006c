package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // arguments of Coscheduling
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// coscheduling is the name of the gang plugin that is compiled into the scheduler.
const coscheduling = "Coscheduling"

// schedulerConfig is what the scheduler's configuration says about plans. As in the scheduler, the first profile that has Provision
// configures the process.
type schedulerConfig struct {
	profiles []schedulerapi.KubeSchedulerProfile
	args     *provision.Args
	pools    []karpenter.Profile
	// coscheduling: a profile has that plugin. warnings name what the plan leaves out.
	coscheduling bool
	warnings     []string
	// namespaces selects those whose pods may cause launches; nil: all.
	namespaces labels.Selector
	// lease is that of the leader election; empty: there is none.
	lease types.NamespacedName
}

// readConfig reads a KubeSchedulerConfiguration as dovetail-scheduler accepts it with --config.
func readConfig(file string) (*schedulerConfig, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseConfig(raw)
}

// parseConfig is readConfig for the text of a file.
func parseConfig(raw []byte) (*schedulerConfig, error) {
	var object any
	if err := yaml.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	if _, ok := object.(map[string]any); !ok {
		return nil, errors.New("it is not a Kubernetes object")
	}
	decoded, gvk, err := scheme.Codecs.UniversalDecoder().Decode(raw, nil, nil) // with defaults
	if runtime.IsNotRegisteredError(err) {
		return nil, errors.New("it is not a KubeSchedulerConfiguration of a version that the scheduler knows")
	}
	if err != nil {
		return nil, err
	}
	cfg, ok := decoded.(*schedulerapi.KubeSchedulerConfiguration)
	if !ok {
		return nil, fmt.Errorf("it is a %s, not a KubeSchedulerConfiguration", gvk)
	}
	out := &schedulerConfig{}
	for _, p := range cfg.Profiles {
		if !enables(&p, provision.Name) {
			continue // no nodes are launched for its pods
		}
		args, err := provision.DecodeArgs(pluginargs.Of(p.PluginConfig, provision.Name))
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.SchedulerName, err)
		}
		for _, w := range args.Warnings {
			out.warnings = append(out.warnings, fmt.Sprintf("profile %q: %s arguments: %s", p.SchedulerName, provision.Name, w))
		}
		pools, err := poolsOf(&p, args)
		if err != nil {
			return nil, fmt.Errorf("profile %q: %s arguments: %w", p.SchedulerName, provision.Name, err)
		}
		if out.args == nil {
			out.args = args
			if args.NamespaceSelector != nil {
				if out.namespaces, err = metav1.LabelSelectorAsSelector(args.NamespaceSelector); err != nil {
					return nil, fmt.Errorf("profile %q: %s arguments: namespaceSelector: %w", p.SchedulerName, provision.Name, err)
				}
			}
		}
		out.coscheduling = out.coscheduling || enables(&p, coscheduling)
		// Verification needs neither the ledger nor the launch controller, and Coscheduling decides by more than the cluster's state.
		without(&p, append([]string{provision.Name, binder.Name, binder.GateName, coscheduling}, args.SimulationDenyList...))
		out.profiles, out.pools = append(out.profiles, p), append(out.pools, pools)
	}
	if out.args == nil {
		return nil, errors.New("no profile has the plugin " + provision.Name)
	}
	if election := &cfg.LeaderElection; election.LeaderElect {
		out.lease = types.NamespacedName{Namespace: election.ResourceNamespace, Name: election.ResourceName}
	}
	if asked := provision.Extenders(cfg.Extenders); len(asked) > 0 {
		out.warnings = append(out.warnings, fmt.Sprintf("extenders are not called before nodes are bought: %s", strings.Join(asked, ", ")))
	}
	return out, nil
}

// definitions are what an API server would check objects with.
var definitions = karpenter.NewDefinitions(nodeclass.CRDs())

// poolsOf returns what a profile's arguments say about pools.
func poolsOf(p *schedulerapi.KubeSchedulerProfile, args *provision.Args) (karpenter.Profile, error) {
	out := karpenter.Profile{Scheduler: p.SchedulerName, Others: args.ProvisionFor}
	if args.NodePoolSelector != nil {
		selector, err := metav1.LabelSelectorAsSelector(args.NodePoolSelector)
		if err != nil {
			return out, fmt.Errorf("nodePoolSelector: %w", err)
		}
		out.Selects = func(of map[string]string) bool { return selector.Matches(labels.Set(of)) }
	}
	pools, classes, errs := karpenter.ReadInline(definitions, nodeclass.Kind, inline(args.NodePools), inline(args.EC2NodeClasses))
	out.Pools, out.Classes = pools, classes
	if len(errs) > 0 {
		return out, errs.ToAggregate()
	}
	return out, nil
}

func inline(of []provision.Inline) []karpenter.Inline {
	out := make([]karpenter.Inline, 0, len(of))
	for _, o := range of {
		out = append(out, karpenter.Inline{Name: o.Name, Spec: o.Spec})
	}
	return out
}

// sets returns a profile's extension points.
func sets(p *schedulerapi.KubeSchedulerProfile) []*schedulerapi.PluginSet {
	if p.Plugins == nil {
		return nil
	}
	s := p.Plugins
	return []*schedulerapi.PluginSet{&s.PreEnqueue, &s.QueueSort, &s.PreFilter, &s.Filter, &s.PostFilter, &s.PreScore, &s.Score, &s.Reserve,
		&s.Permit, &s.PreBind, &s.Bind, &s.PostBind, &s.MultiPoint}
}

func enables(p *schedulerapi.KubeSchedulerProfile, plugin string) bool {
	return slices.ContainsFunc(sets(p), func(s *schedulerapi.PluginSet) bool {
		return slices.ContainsFunc(s.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == plugin })
	})
}

// without removes plugins from a profile.
func without(p *schedulerapi.KubeSchedulerProfile, plugins []string) {
	is := func(e schedulerapi.Plugin) bool { return slices.Contains(plugins, e.Name) }
	for _, s := range sets(p) {
		s.Enabled, s.Disabled = slices.DeleteFunc(s.Enabled, is), slices.DeleteFunc(s.Disabled, is)
	}
	p.PluginConfig = slices.DeleteFunc(p.PluginConfig, func(c schedulerapi.PluginConfig) bool { return slices.Contains(plugins, c.Name) })
}

// apply copies the configuration's settings into those of a plan.
func (c *schedulerConfig) apply(s *offline.Settings) {
	s.Profiles, s.Pools, s.NamespaceSelector = c.profiles, c.pools, c.namespaces
	s.Limits, s.ManagedBy = capacity.ResourcesOf(c.args.Limits), c.args.Name
	s.Coscheduling, s.Warnings = c.coscheduling, c.warnings
	s.Legacy = nodeclass.Legacy{DefaultInstanceProfile: c.args.DefaultInstanceProfile}
	s.Plan.IgnorePreferences = c.args.PreferencePolicy == provision.PreferenceIgnore
	s.Plan.RelaxMinValues = c.args.MinValuesPolicy == provision.MinValuesBestEffort
	s.Plan.NodeSurcharge, s.Plan.PriceFactor, s.Plan.Commitments = c.args.NodeSurchargeDollarsPerHour, c.args.PriceFactors, c.args.Committed()
}

// sizes returns the settings that influence which nodes there can be, and their size.
func (c *schedulerConfig) sizes() aws.OfflineConfig {
	return aws.OfflineConfig{VMMemoryOverheadPercent: *c.args.VMMemoryOverheadPercent, ReservedENIs: c.args.ReservedENIs, PrefixDelegation: c.args.PrefixDelegation,
		ManagedBy: c.args.Name}
}
