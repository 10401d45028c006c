package main

import (
	"context"
	"slices"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	pluginnames "k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// warnOfScores logs which profiles send pods to the emptiest nodes although pools consolidate, which empties just these nodes. It is called
// when the store has read the pools.
func warnOfScores(ctx context.Context, profiles []profile, sched *scheduler.Scheduler, store client.Reader) {
	spreading := leastAllocated(profiles, sched)
	if len(spreading) == 0 {
		return
	}
	logger := klog.FromContext(ctx)
	var pools karpv1.NodePoolList
	if err := store.List(ctx, &pools); err != nil {
		logger.Error(err, "Listing NodePools, to see whether they consolidate")
		return
	}
	if consolidating := consolidatingPools(pools.Items); len(consolidating) > 0 {
		logger.Info("Profiles score nodes by LeastAllocated, so pods go to the nodes that consolidation is about to empty: "+
			"with scoringStrategy MostAllocated in the arguments of NodeResourcesFit fewer nodes are needed", "profiles", spreading, "nodePools", consolidating)
	}
}

// leastAllocated returns the profiles in which NodeResourcesFit prefers the nodes with the least allocated, as by default.
func leastAllocated(profiles []profile, sched *scheduler.Scheduler) (out []string) {
	for _, p := range profiles {
		running := sched.Profiles[p.config.SchedulerName].ListPlugins()
		if !slices.ContainsFunc(running.Score.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == pluginnames.NodeResourcesFit }) {
			continue
		}
		strategy := schedulerapi.LeastAllocated
		for _, c := range p.config.PluginConfig {
			if args, ok := c.Args.(*schedulerapi.NodeResourcesFitArgs); ok && args.ScoringStrategy != nil {
				strategy = args.ScoringStrategy.Type
			}
		}
		if strategy == schedulerapi.LeastAllocated {
			out = append(out, p.config.SchedulerName)
		}
	}
	return out
}

// consolidatingPools returns the pools whose used nodes are emptied to save money.
func consolidatingPools(pools []karpv1.NodePool) (out []string) {
	for i := range pools {
		p := &pools[i]
		if d := &p.Spec.Disruption; p.Spec.Replicas == nil && d.ConsolidationPolicy != karpv1.ConsolidationPolicyWhenEmpty && d.ConsolidateAfter.Duration != nil {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}
