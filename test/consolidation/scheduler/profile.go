package scheduler

import (
	"fmt"
	"slices"
	"strings"

	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
)

// Scoring is how a profile scores nodes.
type Scoring struct {
	// Strategy is NodeResourcesFit's, FitWeight and BalancedWeight are the weights of NodeResourcesFit and NodeResourcesBalancedAllocation;
	// a weight of 0 disables the plugin's scores.
	Strategy                  schedulerapi.ScoringStrategyType
	FitWeight, BalancedWeight int32
	// Kept is the weight of KeptName; 0: the profile doesn't have it.
	Kept int32
}

// Upstream is the scoring of kube-scheduler's default profile.
var Upstream = Scoring{Strategy: schedulerapi.LeastAllocated, FitWeight: 1, BalancedWeight: 1}

// Shipped returns the profile of manifests/secondary.
func Shipped() (*schedulerapi.KubeSchedulerProfile, error) {
	contents, err := manifests.Folder("secondary")
	if err != nil {
		return nil, err
	}
	for _, content := range contents {
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var config struct{ Data map[string]string }
			if err := yaml.Unmarshal([]byte(document), &config); err != nil || config.Data[manifests.ConfigKey] == "" {
				continue
			}
			text := strings.NewReplacer("region: CHANGE-ME", "region: us-west-2", "CHANGE-ME", "simulated").Replace(config.Data[manifests.ConfigKey])
			decoded, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
			if err != nil {
				return nil, fmt.Errorf("reading the shipped configuration: %w", err)
			}
			return &decoded.(*schedulerapi.KubeSchedulerConfiguration).Profiles[0], nil
		}
	}
	return nil, fmt.Errorf("manifests/secondary has no %s", manifests.ConfigKey)
}

// apply changes a profile's scoring.
func (s Scoring) apply(p *schedulerapi.KubeSchedulerProfile) {
	for _, c := range p.PluginConfig {
		if args, ok := c.Args.(*schedulerapi.NodeResourcesFitArgs); ok {
			args.ScoringStrategy = &schedulerapi.ScoringStrategy{Type: s.Strategy, Resources: []schedulerapi.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}}
		}
	}
	weigh := func(name string, weight int32) {
		multi := &p.Plugins.MultiPoint
		at := slices.IndexFunc(multi.Enabled, func(e schedulerapi.Plugin) bool { return e.Name == name })
		if at < 0 {
			at, multi.Enabled = len(multi.Enabled), append(multi.Enabled, schedulerapi.Plugin{Name: name})
		}
		multi.Enabled[at].Weight = weight
		if weight == 0 {
			for _, point := range []*schedulerapi.PluginSet{&p.Plugins.PreScore, &p.Plugins.Score} {
				point.Disabled = append(point.Disabled, schedulerapi.Plugin{Name: name})
			}
		}
	}
	weigh(names.NodeResourcesFit, s.FitWeight)
	weigh(names.NodeResourcesBalancedAllocation, s.BalancedWeight)
	if s.Kept > 0 {
		weigh(KeptName, s.Kept)
	}
}
