package main

import (
	"context"
	"slices"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	schedulerserverconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/plugins/binder"
)

// setup is upstream's app.Setup with two steps more, for which upstream has no hooks: between reading the configuration and building the scheduler it
// adds InitializingNodes to the profiles without our plugins, and Binder's gate to the profiles with Binder.
func (d *dovetail) setup(ctx context.Context, opts *options.Options) (*schedulerserverconfig.CompletedConfig, *scheduler.Scheduler, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, nil, err
	}
	opts.ComponentConfig = defaults
	if errs := opts.Validate(); len(errs) > 0 {
		return nil, nil, utilerrors.NewAggregate(errs)
	}
	config, err := opts.Config(ctx)
	if err != nil {
		return nil, nil, err
	}
	cc := config.Complete()
	registry := frameworkruntime.Registry{}
	for _, register := range d.plugins() {
		if err := register(registry); err != nil {
			return nil, nil, err
		}
	}
	cc.ComponentConfig.Profiles = complete(cc.ComponentConfig.Profiles)
	var built []schedulerapi.KubeSchedulerProfile // the profiles with all plugins, for the configuration that is logged and written
	cfg := &cc.ComponentConfig
	sched, err := scheduler.New(ctx, cc.Client, cc.InformerFactory, cc.DynInformerFactory,
		func(name string) events.EventRecorderLogger { return cc.EventBroadcaster.NewRecorder(name) },
		scheduler.WithComponentConfigVersion(cfg.APIVersion),
		scheduler.WithKubeConfig(cc.KubeConfig),
		scheduler.WithProfiles(cfg.Profiles...),
		scheduler.WithPercentageOfNodesToScore(cfg.PercentageOfNodesToScore),
		scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodMaxBackoffSeconds(cfg.PodMaxBackoffSeconds),
		scheduler.WithPodInitialBackoffSeconds(cfg.PodInitialBackoffSeconds),
		scheduler.WithPodMaxInUnschedulablePodsDuration(cc.PodMaxInUnschedulablePodsDuration),
		scheduler.WithExtenders(cfg.Extenders...),
		scheduler.WithParallelism(cfg.Parallelism),
		scheduler.WithBuildFrameworkCapturer(func(p schedulerapi.KubeSchedulerProfile) { built = append(built, p) }),
	)
	if err != nil {
		return nil, nil, err
	}
	if err := options.LogOrWriteConfig(klog.FromContext(ctx), opts.WriteConfigTo, cfg, built); err != nil {
		return nil, nil, err
	}
	return &cc, sched, nil
}

// complete adds the plugins that profiles get without naming them.
func complete(profiles []schedulerapi.KubeSchedulerProfile) []schedulerapi.KubeSchedulerProfile {
	return withGate(withInitializingNodes(profiles))
}

// withInitializingNodes adds InitializingNodes to the profiles that don't have Binder's Filter, if another profile has it. It is added at
// each extension point: a profile may have disabled what multiPoint adds.
func withInitializingNodes(profiles []schedulerapi.KubeSchedulerProfile) []schedulerapi.KubeSchedulerProfile {
	if !slices.ContainsFunc(profiles, func(p schedulerapi.KubeSchedulerProfile) bool { return filters(p.Plugins, binder.Name) }) {
		return profiles // a plain kube-scheduler
	}
	out := slices.Clone(profiles)
	for i := range out {
		p := &out[i]
		if filters(p.Plugins, binder.Name) || filters(p.Plugins, binder.InitializingNodesName) {
			continue
		}
		plugins := &schedulerapi.Plugins{}
		if p.Plugins != nil {
			plugins = p.Plugins.DeepCopy()
		}
		for _, set := range []*schedulerapi.PluginSet{&plugins.PreFilter, &plugins.Filter, &plugins.Reserve, &plugins.PostBind} {
			if !named(set.Enabled, binder.InitializingNodesName) {
				set.Enabled = append([]schedulerapi.Plugin{{Name: binder.InitializingNodesName}}, set.Enabled...)
			}
		}
		p.Plugins = plugins
	}
	return out
}

// withGate adds Binder's gate to the profiles that have Binder's Filter. The plugin Binder itself has no PreEnqueue, even where a profile
// names it there.
func withGate(profiles []schedulerapi.KubeSchedulerProfile) []schedulerapi.KubeSchedulerProfile {
	out := slices.Clone(profiles)
	for i := range out {
		p := &out[i]
		if !filters(p.Plugins, binder.Name) {
			continue
		}
		p.Plugins = p.Plugins.DeepCopy()
		set := &p.Plugins.PreEnqueue
		set.Enabled = slices.DeleteFunc(set.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == binder.Name || e.Name == binder.GateName })
		set.Enabled = append([]schedulerapi.Plugin{{Name: binder.GateName}}, set.Enabled...)
	}
	return out
}

// filters reports whether the profile runs the plugin at the Filter extension point.
func filters(p *schedulerapi.Plugins, plugin string) bool {
	if p == nil {
		return false
	}
	return named(p.Filter.Enabled, plugin) || named(p.MultiPoint.Enabled, plugin) && !named(p.Filter.Disabled, plugin) && !named(p.Filter.Disabled, "*")
}

func named(plugins []schedulerapi.Plugin, name string) bool {
	return slices.ContainsFunc(plugins, func(p schedulerapi.Plugin) bool { return p.Name == name })
}
