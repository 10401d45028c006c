package main

import (
	"context"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	schedulerprofile "k8s.io/kubernetes/pkg/scheduler/profile"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// poolList is a store that has pools.
type poolList struct {
	client.Reader
	pools []karpv1.NodePool
}

func (l poolList) List(_ context.Context, to client.ObjectList, _ ...client.ListOption) error {
	to.(*karpv1.NodePoolList).Items = l.pools
	return nil
}

// Who consolidates and lets pods go to the emptiest nodes is told so.
func TestLeastAllocatedWithConsolidation(t *testing.T) {
	pool := func(policy karpv1.ConsolidationPolicy, after string, replicas *int64) karpv1.NodePool {
		p := karpv1.NodePool{}
		p.Name, p.Spec.Replicas = "pool-a", replicas
		p.Spec.Disruption = karpv1.Disruption{ConsolidationPolicy: policy, ConsolidateAfter: karpv1.MustParseNillableDuration(after)}
		return p
	}
	consolidates, three := pool(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "0s", nil), int64(3)
	for _, tc := range []struct {
		name     string
		strategy schedulerapi.ScoringStrategyType // empty: the profile says nothing
		score    schedulerapi.PluginSet
		pool     karpv1.NodePool
		want     bool
	}{
		{name: "upstream's default", score: set("NodeResourcesFit"), pool: consolidates, want: true},
		{name: "by name", strategy: schedulerapi.LeastAllocated, score: set("NodeResourcesFit"), pool: consolidates, want: true},
		{name: "Balanced", score: set("NodeResourcesFit"), pool: pool("Balanced", "0s", nil), want: true},
		{name: "as shipped", strategy: schedulerapi.MostAllocated, score: set("NodeResourcesFit"), pool: consolidates},
		{name: "a shape of one's own", strategy: schedulerapi.RequestedToCapacityRatio, score: set("NodeResourcesFit"), pool: consolidates},
		{name: "another plugin scores", score: set("Trimaran"), pool: consolidates},
		{name: "only empty nodes end", score: set("NodeResourcesFit"), pool: pool(karpv1.ConsolidationPolicyWhenEmpty, "0s", nil)},
		{name: "consolidateAfter Never", score: set("NodeResourcesFit"), pool: pool(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "Never", nil)},
		{name: "a static pool", score: set("NodeResourcesFit"), pool: pool(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, "0s", &three)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := profileOf(t, "ours", "", "")
			if tc.strategy != "" {
				p.config.PluginConfig = []schedulerapi.PluginConfig{{Name: "NodeResourcesFit", Args: &schedulerapi.NodeResourcesFitArgs{
					ScoringStrategy: &schedulerapi.ScoringStrategy{Type: tc.strategy}}}}
			}
			logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			sched := &scheduler.Scheduler{Profiles: schedulerprofile.Map{"ours": listed{plugins: schedulerapi.Plugins{Score: tc.score}}}}
			warnOfScores(klog.NewContext(t.Context(), logger), []profile{p}, sched, poolList{pools: []karpv1.NodePool{tc.pool}})
			log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
			if got := strings.Contains(log, "LeastAllocated") && strings.Contains(log, "ours") && strings.Contains(log, "pool-a"); got != tc.want {
				t.Errorf("logged: %q, want a warning: %v", log, tc.want)
			}
		})
	}
}
