package planner

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/pods"
)

func TestPlanOfNodeTerms(t *testing.T) {
	runPlans(t, []planCase{
		{name: "a zone by selector is fixed", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{capacity.LabelZone: "b"} }), testNode("n1", "a", 4, 8))
		}, want: `
			default on-demand c.2 b: map[web:1]
			`},
		{name: "any of several terms", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) {
				p.Spec.Affinity = pods.NodeAffinity(pods.Requires("nowhere", "Exists"), pods.Requires("karpenter.k8s.aws/instance-cpu", "Gt", "4"))
			}))
		}, want: `
			default on-demand c.8 : map[web:1]
			`},
		{name: "NotIn and DoesNotExist are content with a label that is not there", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) {
				p.Spec.Affinity = pods.NodeAffinity()
				p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{pods.Requires("gpu", "DoesNotExist"), pods.Requires("team", "NotIn", "a"), pods.Requires("karpenter.k8s.aws/instance-family", "NotIn", "c")}}}
			}))
		}, want: `
			default on-demand m.2 : map[web:1]
			`},
		{name: "an architecture the pool does not have", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", on(corev1.LabelArchStable, "arm64")))
		}, want: `
			refused 1 web: default: none of 12 instance types has kubernetes.io/arch in (arm64)
			`},
		{name: "a label nobody defines", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", on("team", "blue")))
		}, want: `
			refused 1 web: default: the pod asks for team in (blue), a label that the pool's nodes don't have
			`},
		{name: "a label nobody defines, and a zone that every type has", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"team": "blue", capacity.LabelZone: "a"} }))
		}, want: `
			refused 1 web: default: the pod asks for team in (blue), a label that the pool's nodes don't have
			`},
		{name: "another pool", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", on(capacity.LabelNodePool, "edge")))
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn(capacity.LabelNodePool, "default"))
			return v
		}, want: `
			refused 1 web: default: the pod asks for pool edge
			`},
		{name: "a label the pool leaves open takes the pod's value", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", on("team", "blue")))
			exists, _ := capacity.NewRequirement("team", capacity.Exists)
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(exists)
			v.Demand = append(v.Demand, demandOf(t, 1, asking("db", "cpu=1", on("team", "red"))))
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[db:1]
			`},
		{name: "a preferred zone, as long as it can be had", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", preferring(capacity.LabelZone, "c")))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("db", "cpu=1", preferring(capacity.LabelZone, "z"), preferring(capacity.LabelZone, "b"))))
			return v
		}, want: `
			default on-demand c.2 c: map[web:1]
			default on-demand c.2 b: map[db:1]
			`},
		{name: "preferences ignored", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", preferring(capacity.LabelZone, "c")))
		}, opts: capacity.Options{IgnorePreferences: true}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "volumes in one zone", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("db", "cpu=1"))
			c, err := capacity.ClassOf(v.Demand[0].Class.Pod, capacity.VolumeInfo{Topology: [][]capacity.Requirements{{{capacity.LabelZone: capacity.ValueIn(capacity.LabelZone, "c")}}}})
			if err != nil {
				t.Fatal(err)
			}
			v.Demand[0].Class = c
			return v
		}, want: `
			default on-demand c.2 c: map[db:1]
			`},
		{name: "so many volumes per machine", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 5, asking("db", "cpu=100m"))
			v.Demand[0].Class.Volumes = map[string]int64{"ebs": 2}
			for _, typ := range v.Pools[0].Types {
				typ.VolumeLimits = map[string]int64{"ebs": 5}
			}
			return v
		}, want: `
			default on-demand c.2 : map[db:2]
			default on-demand c.2 : map[db:2]
			default on-demand c.2 : map[db:1]
			`},
	})
}
