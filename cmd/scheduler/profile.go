package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/dovetail-scheduler/dovetail/plugins/binder"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// upstreamLease is the name of kube-scheduler's default lease.
const upstreamLease = "kube-scheduler"

// profile is a profile that has our plugins.
type profile struct {
	config schedulerapi.KubeSchedulerProfile
	args   *provision.Args
	binder *binder.Args
}

// ourProfiles returns the profiles with our plugins, in the order of the configuration.
func ourProfiles(cfg *schedulerapi.KubeSchedulerConfiguration, sched *scheduler.Scheduler) ([]profile, error) {
	var out []profile
	for _, p := range cfg.Profiles {
		running, ok := sched.Profiles[p.SchedulerName]
		if !ok {
			continue
		}
		enabled := running.ListPlugins()
		has := func(set schedulerapi.PluginSet, name string) bool {
			return slices.ContainsFunc(set.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == name })
		}
		provides, binds := has(enabled.PostFilter, provision.Name), has(enabled.Filter, binder.Name)
		if !provides && !binds {
			continue
		}
		if !provides || !binds || !has(enabled.PreEnqueue, binder.GateName) || !has(enabled.PreFilter, binder.Name) ||
			!has(enabled.Reserve, binder.Name) || !has(enabled.PostBind, binder.Name) {
			return nil, fmt.Errorf("profile %q: %s and %s belong together, at all of their extension points: enable both under multiPoint",
				p.SchedulerName, provision.Name, binder.Name)
		}
		if enabled.PostFilter.Enabled[0].Name != provision.Name {
			return nil, fmt.Errorf("profile %q: %s must be the first postFilter plugin, but %s is: name it under postFilter, too",
				p.SchedulerName, provision.Name, enabled.PostFilter.Enabled[0].Name)
		}
		if first := enabled.PreFilter.Enabled[0].Name; first != binder.Name {
			// Otherwise other plugins would refuse a pod whose node is ready before Binder has pinned it, again and again.
			return nil, fmt.Errorf("profile %q: plugins.preFilter: %s must be the first preFilter plugin, but %s is: name it under preFilter.enabled, too",
				p.SchedulerName, binder.Name, first)
		}
		args, err := provision.DecodeArgs(pluginargs.Of(p.PluginConfig, provision.Name))
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.SchedulerName, err)
		}
		binding, err := binder.DecodeArgs(pluginargs.Of(p.PluginConfig, binder.Name))
		if err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.SchedulerName, err)
		}
		one := profile{config: p, args: args, binder: binding}
		if err := one.fits(out); err != nil {
			return nil, fmt.Errorf("profile %q: %w", p.SchedulerName, err)
		}
		out = append(out, one)
	}
	if len(out) == 0 {
		return nil, errors.New("no profile enables both plugins of Dovetail, Provision and Binder")
	}
	if le := cfg.LeaderElection; le.LeaderElect && le.ResourceName == upstreamLease && sched.Profiles[corev1.DefaultSchedulerName] == nil {
		return nil, fmt.Errorf("leaderElection.resourceName: %q is the cluster's own scheduler's lease, and no profile is called %s: "+
			"a second scheduler that waits for it would wait for ever; give it a lease of its own", upstreamLease, corev1.DefaultSchedulerName)
	}
	if name := out[0].args.Name; name != "" && !cfg.LeaderElection.LeaderElect {
		return nil, fmt.Errorf("leaderElection.leaderElect: must be true: on its lease, Dovetail %q tells others what it manages (%s arguments: name)", name, provision.Name)
	}
	return out, nil
}

// launchTime is how long a launch may take, of the time that pods wait for a node; the rest is left for the registration.
const launchTime = 5 * time.Minute

// fits returns an error for arguments that contradict those of another plugin of the profile, or of another profile.
func (p profile) fits(others []profile) error {
	if most := p.binder.GateDeadline.Duration - launchTime; p.args.RegistrationTimeout.Duration > most {
		return fmt.Errorf("%s arguments: registrationTimeout: Invalid value: %q: must not be above %v: pods wait %v for a node (%s's gateDeadline), %v of which are for the launch",
			provision.Name, p.args.RegistrationTimeout.Duration, most, p.binder.GateDeadline.Duration, binder.Name, launchTime)
	}
	for _, o := range others {
		if name := p.args.Contradicts(o.args); name != "" {
			return fmt.Errorf("%s arguments: %s: Invalid value: it applies to the whole process, and profile %q has another value", provision.Name, name, o.config.SchedulerName)
		}
		if name := p.binder.Contradicts(o.binder); name != "" {
			return fmt.Errorf("%s arguments: %s: Invalid value: it applies to the whole process, and profile %q has another value", binder.Name, name, o.config.SchedulerName)
		}
	}
	return nil
}

// minServerMinor is the oldest API server version that serves what the scheduler's informers watch (resource.k8s.io/v1).
const minServerMinor = 34

// serverVersion returns the API server's major.minor. An unreachable server is not an error: the scheduler will wait for it.
func serverVersion(ctx context.Context, c kubernetes.Interface) (string, error) {
	v, err := c.Discovery().WithLegacy().ServerVersion()
	if err != nil || ctx.Err() != nil {
		return "", nil
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil {
		return "", nil
	}
	if v.Major == "1" && minor < minServerMinor {
		return "", fmt.Errorf("the API server is %s; 1.%d is the oldest that serves the kinds this scheduler watches (resource.k8s.io/v1): its caches would never sync",
			v.GitVersion, minServerMinor)
	}
	return fmt.Sprintf("%s.%d", v.Major, minor), nil
}
