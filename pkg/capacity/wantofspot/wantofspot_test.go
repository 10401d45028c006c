package wantofspot

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A node is bought for want of spot capacity if a pool has such capacity for its pods, cheaper and only unavailable now.
func TestOf(t *testing.T) {
	on := capacity.Requirements{}.And(capacity.ValueIn(capacity.LabelCapacityType, "on-demand"))
	for name, tc := range map[string]struct {
		offer func(*capacity.Offer)
		pool  func(*capacity.Pool)
		class func(*capacity.Class)
		node  func(*capacity.PlannedNode)
		want  bool
	}{
		"unavailable":                {want: true},
		"available":                  {offer: func(o *capacity.Offer) { o.Available = true }},
		"dearer":                     {offer: func(o *capacity.Offer) { o.Price = 1.5 }},
		"no spot":                    {offer: func(o *capacity.Offer) { o.CapacityType = "reserved" }},
		"the pool is on demand only": {pool: func(p *capacity.Pool) { p.Requirements = on }},
		"in another zone":            {pool: func(p *capacity.Pool) { p.Requirements = p.Requirements.And(capacity.ValueIn(capacity.LabelZone, "b")) }},
		"of another family":          {pool: func(p *capacity.Pool) { p.Requirements = p.Requirements.And(capacity.ValueIn("family", "c")) }},
		"of lower weight":            {pool: func(p *capacity.Pool) { p.Weight = -1 }},
		"of higher weight":           {pool: func(p *capacity.Pool) { p.Weight = 1 }, want: true},
		"with a taint":               {pool: func(p *capacity.Pool) { p.Taints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}} }},
		"for another scheduler":      {pool: func(p *capacity.Pool) { p.Schedulers = []string{"other"} }},
		"static":                     {pool: func(p *capacity.Pool) { p.Replicas = new(int64) }},
		"pods want to be on demand":  {class: func(c *capacity.Class) { c.Terms = []capacity.Requirements{on} }},
		"pods want a label it has": {class: func(c *capacity.Class) {
			c.Terms = []capacity.Requirements{capacity.Requirements{}.And(capacity.ValueIn("team", "a"))}
		}, want: true},
		"pods want another label": {class: func(c *capacity.Class) {
			c.Terms = []capacity.Requirements{capacity.Requirements{}.And(capacity.ValueIn("team", "b"))}
		}},
		"too small":   {node: func(n *capacity.PlannedNode) { n.Requests = capacity.Resources{"cpu": 5000} }},
		"a spot node": {node: func(n *capacity.PlannedNode) { n.CapacityType = "spot" }},
	} {
		t.Run(name, func(t *testing.T) {
			typ := &capacity.InstanceType{Name: "m.large", Labels: map[string]string{"family": "m"}, Allocatable: capacity.Resources{"cpu": 4000},
				Offers: []capacity.Offer{{Zone: "a", CapacityType: "on-demand", Price: 1, Available: true}, {Zone: "a", CapacityType: "spot", Price: 0.4}}}
			own := &capacity.Pool{Name: "own", Types: []*capacity.InstanceType{typ}, Requirements: on}
			other := &capacity.Pool{Name: "spot", Types: []*capacity.InstanceType{typ}, Labels: map[string]string{"team": "a"},
				Requirements: capacity.Requirements{}.And(capacity.ValueIn("team", "a"))}
			class := &capacity.Class{Pod: &corev1.Pod{Spec: corev1.PodSpec{SchedulerName: "ours"}}}
			n := &capacity.PlannedNode{ID: "planned/1", Pool: own, CapacityType: "on-demand", Price: 1, Requests: capacity.Resources{"cpu": 2000}}
			if tc.offer != nil {
				tc.offer(&typ.Offers[1])
			}
			if tc.pool != nil {
				tc.pool(other)
			}
			if tc.class != nil {
				tc.class(class)
			}
			if tc.node != nil {
				tc.node(n)
			}
			plan := &capacity.Plan{Nodes: []*capacity.PlannedNode{n}, Placements: []capacity.Placement{{Class: class, Node: n.ID}}}
			if got := Of(plan, []*capacity.Pool{own, other})[n.ID]; got != tc.want {
				t.Errorf("for want of spot: %v, want %v", got, tc.want)
			}
		})
	}
}
