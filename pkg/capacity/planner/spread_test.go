package planner

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPlanOfSpread(t *testing.T) {
	runPlans(t, []planCase{
		{name: "over zones, evenly", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 6, asking("web", "cpu=800m", withSpread(capacity.LabelZone)))
		}, want: `
			default on-demand c.2 a: map[web:2]
			default on-demand c.2 b: map[web:2]
			default on-demand c.2 c: map[web:2]
			`},
		{name: "pods that are there are counted", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelZone)), testNode("n1", "a", 0, 0, running("web"), running("web")))
		}, want: `
			default on-demand c.2 b: map[web:2]
			default on-demand c.2 c: map[web:2]
			`},
		{name: "a full zone that can't be bought in holds the others back", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelZone)), testNode("n1", "z", 0, 0))
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			refused 1 web: default: topology spread over topology.kubernetes.io/zone with maxSkew 1 allows no domain
			`},
		{name: "over a label that no node has", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 2, asking("web", "cpu=800m", withSpread("foo.com/rack")), testNode("n1", "a", 4, 8))
		}, want: `
			refused 2 web: default: topology spread over foo.com/rack needs a label that none of the pool's possible nodes has
			`},
		{name: "nodes the pod can't use don't count, by default", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelZone), on(capacity.LabelZone, "a", "b")), testNode("n1", "c", 0, 0))
		}, want: `
			default on-demand c.2 a: map[web:2]
			default on-demand c.2 b: map[web:2]
			`},
		{name: "tainted nodes count, by default", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "z", 0, 0)
			n.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			return viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelZone)), n)
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			refused 1 web: default: topology spread over topology.kubernetes.io/zone with maxSkew 1 allows no domain
			`},
		{name: "unless the policy says otherwise", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "z", 0, 0)
			n.Taints = []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoSchedule}}
			honor := corev1.NodeInclusionPolicyHonor
			return viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelZone, func(s *corev1.TopologySpreadConstraint) { s.NodeTaintsPolicy = &honor })), n)
		}, want: `
			default on-demand c.2 a: map[web:2]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			`},
		{name: "free capacity that only the plan's other pods make possible is used", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=800m", withSpread(capacity.LabelZone)),
				testNode("n1", "a", 0, 0, running("web")), testNode("n2", "a", 4, 8), testNode("n3", "b", 0, 0), testNode("n4", "c", 0, 0))
		}, want: `
			n2: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			`},
		{name: "also by pods of another shape", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=800m", withSpread(capacity.LabelZone)),
				testNode("n1", "a", 0, 0, running("web")), testNode("n2", "a", 4, 8), testNode("n3", "b", 0, 0), testNode("n4", "c", 0, 0))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=1500m", withSpread(capacity.LabelZone), func(p *corev1.Pod) { p.Name = "web2" })))
			return v
		}, want: `
			n2: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			`},
		{name: "and isn't waited for where the others find none", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=800m", withSpread(capacity.LabelZone), on(capacity.LabelZone, "a", "z")),
				testNode("n1", "a", 0, 0, running("web")), testNode("n2", "a", 4, 8), testNode("n3", "z", 0, 0))
		}, want: `
			refused 3 web: default: topology spread over topology.kubernetes.io/zone with maxSkew 1 allows no domain
			`},
		{name: "minDomains opens zones nobody needs", view: func(t *testing.T) *capacity.View {
			three := int32(3)
			return viewOf(t, 2, asking("web", "cpu=800m", withSpread(capacity.LabelZone, func(s *corev1.TopologySpreadConstraint) { s.MinDomains = &three })),
				testNode("n1", "a", 4, 8, running("web")))
		}, want: `
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			`},
		{name: "over host names, one each", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=100m", withSpread(capacity.LabelHostname)))
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			`},
		{name: "over host names where every node has one already", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 2, asking("web", "cpu=100m", withSpread(capacity.LabelHostname)), testNode("n1", "a", 4, 8, running("web")), testNode("n2", "a", 4, 8, running("web")))
		}, want: `
			n1: map[web:1]
			n2: map[web:1]
			`},
		{name: "over capacity types", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 4, asking("web", "cpu=800m", withSpread(capacity.LabelCapacityType)))
			v.Pools[0].Requirements = nil
			v.Pools[0].Types = testTypes()[:4]
			return v
		}, want: `
			default on-demand c.2 : map[web:2]
			default spot c.2 : map[web:2]
			`},
		{name: "over a label of the pools", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 4, asking("web", "cpu=800m", withSpread("rack")))
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn("rack", "1", "2"))
			return v
		}, want: `
			default on-demand c.2 : map[web:2]
			default on-demand c.2 : map[web:2]
			`},
		{name: "ScheduleAnyway is given up where it can't be", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=800m", on(capacity.LabelZone, "a"), withSpread("rack", func(s *corev1.TopologySpreadConstraint) { s.WhenUnsatisfiable = corev1.ScheduleAnyway })))
		}, want: `
			default on-demand c.4 a: map[web:4]
			`},
		{name: "only pods of one's own revision", view: func(t *testing.T) *capacity.View {
			rev := func(r string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["rev"] = r } }
			return viewOf(t, 2, asking("web", "cpu=800m", rev("2"), withSpread(capacity.LabelZone, func(s *corev1.TopologySpreadConstraint) { s.MatchLabelKeys = []string{"rev"} })),
				testNode("n1", "a", 1, 8, running("web", rev("1")), running("web", rev("1"))), testNode("n2", "b", 1, 8))
		}, want: `
			n1: map[web:1]
			n2: map[web:1]
			`},
		{name: "a zone that somebody else's node brings counts as well", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 4, asking("web", "cpu=1", withSpread(capacity.LabelZone), func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "none", Operator: corev1.TolerationOpExists}}
			}), testNode("n1", "a", 8, 8))
			v.Pools[0].Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}
			v.Demand = append(v.Demand, demandOf(t, 1, asking("db", "cpu=1", on(capacity.LabelZone, "b"), func(p *corev1.Pod) {
				p.Spec.Tolerations = []corev1.Toleration{{Key: "other", Operator: corev1.TolerationOpExists}}
			})))
			return v
		}, want: `
			n1: map[web:1]
			default on-demand c.2 b: map[db:1]
			refused 3 web: default: taint other:NoSchedule is not tolerated
			`},
	})
}

func TestBindOrderOfASpreadGoesRoundTheZones(t *testing.T) {
	v := viewOf(t, 6, asking("web", "cpu=800m", withSpread(capacity.LabelZone)))
	p := Decide(v, capacity.Options{})
	zone := map[string]string{}
	for _, n := range p.Nodes {
		zone[n.ID] = n.Labels[capacity.LabelZone]
	}
	var got []string
	for _, pl := range p.Placements {
		got = append(got, pl.Pod.Name+" "+zone[pl.Node])
	}
	if diff := cmp.Diff([]string{"web-0 a", "web-1 b", "web-2 c", "web-3 a", "web-4 b", "web-5 c"}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}
