package clustermetrics

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const gi = 1 << 30

func typed(name string, cpu, memory int64, offers ...capacity.Offer) *capacity.InstanceType {
	return &capacity.InstanceType{Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: name},
		Allocatable: capacity.Resources{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory}, Offers: offers}
}

func TestLeastCost(t *testing.T) {
	compute := typed("c", 4000, 8*gi, capacity.Offer{CapacityType: "on-demand", Price: 0.16}, capacity.Offer{CapacityType: "spot", Price: 0.05})
	memory := typed("r", 4000, 32*gi, capacity.Offer{CapacityType: "on-demand", Price: 0.24})
	unknown := typed("x", 64000, 256*gi, capacity.Offer{CapacityType: "on-demand", Price: math.Inf(1)}, capacity.Offer{CapacityType: "reserved", Price: 0})
	requirement, err := capacity.NewRequirement(karpv1.CapacityTypeLabelKey, capacity.In, "on-demand")
	if err != nil {
		t.Fatal(err)
	}
	onDemand := capacity.Requirements{karpv1.CapacityTypeLabelKey: requirement}
	for name, c := range map[string]struct {
		types        []*capacity.InstanceType
		requirements capacity.Requirements
		of           demand
		want         float64
	}{
		"half a node of CPU":              {[]*capacity.InstanceType{compute}, onDemand, demand{cpu: 2000}, 0.08},
		"spot is cheaper, where allowed":  {[]*capacity.InstanceType{compute}, nil, demand{cpu: 4000}, 0.05},
		"one node of each":                {[]*capacity.InstanceType{compute, memory}, onDemand, demand{8000, 40 * gi}, 0.40},
		"memory alone":                    {[]*capacity.InstanceType{compute, memory}, onDemand, demand{1, 64 * gi}, 0.48},
		"unknown prices aren't a bargain": {[]*capacity.InstanceType{unknown, memory}, onDemand, demand{4000, 32 * gi}, 0.24},
		"nothing is requested":            {[]*capacity.InstanceType{compute}, onDemand, demand{}, 0},
		"nothing can be bought":           {[]*capacity.InstanceType{unknown}, nil, demand{4000, gi}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := leastCost(&capacity.Pool{Types: c.types, Requirements: c.requirements}, c.of)
			if math.Abs(got-c.want) > 1e-6 {
				t.Errorf("at least %v $/h, want %v", got, c.want)
			}
		})
	}
}

// The bound counts pods on the pool's own nodes, without daemons, and is worked out again after five minutes.
func TestLowerBound(t *testing.T) {
	w := newWorld()
	w.node("a", map[string]string{karpv1.NodePoolLabelKey: "first"})
	w.node("reserved", map[string]string{karpv1.NodePoolLabelKey: "first", karpv1.CapacityTypeLabelKey: karpv1.CapacityTypeReserved})
	w.node("other", nil)
	for _, node := range []string{"a", "reserved", "other", ""} {
		w.pod("web-"+node, node)
	}
	w.pod("agent", "a", ofDaemonSet)
	w.types = []*capacity.InstanceType{typed("m", 4000, 16*gi, capacity.Offer{CapacityType: "spot", Price: 0.4})}
	s := &state{source: w.Source}
	check := func(first string) {
		t.Helper()
		want(t, text(t, s, "dovetail_cost_lower"), `dovetail_cost_lower_bound_dollars_per_hour{nodepool="first"} `+first, `dovetail_cost_lower_bound_dollars_per_hour{nodepool="second"} 0`)
	}
	check("0.05")
	w.pod("another", "a")
	w.clock.Step(boundEvery - time.Second)
	check("0.05")
	w.clock.Step(Freshness)
	check("0.1")
}
