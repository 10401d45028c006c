package planner

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestPlanOfPodAffinity(t *testing.T) {
	runPlans(t, []planCase{
		{name: "away from one's own kind", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 2, asking("web", "cpu=100m", away("web", capacity.LabelHostname)))
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			`},
		{name: "anti-affinity works both ways", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1"), testNode("n1", "a", 4, 8, running("db", away("web", capacity.LabelHostname))))
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "two kinds that exclude each other share no node", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=100m", away("db", capacity.LabelHostname)))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("db", "cpu=100m")))
			return v
		}, want: `
			default on-demand c.2 : map[web:2]
			default on-demand c.2 : map[db:2]
			`},
		{name: "one per zone", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=100m", away("web", capacity.LabelZone)))
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			refused 1 web: default: pod anti-affinity over topology.kubernetes.io/zone excludes every domain
			`},
		{name: "near pods that are there", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelZone)), testNode("n1", "b", 0, 0, running("db")))
		}, want: `
			default on-demand c.2 b: map[web:1]
			`},
		{name: "near pods that come with the same plan, whichever is asked for first", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelZone)))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("db", "cpu=1 memory=6Gi", on(capacity.LabelZone, "c"))))
			return v
		}, want: `
			default on-demand c.4 c: map[db:1 web:1]
			`},
		{name: "all in one zone, whichever", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=1500m", near("web", capacity.LabelZone)))
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 a: map[web:1]
			`},
		{name: "all on one node", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 3, asking("web", "cpu=1500m", near("web", capacity.LabelHostname)))
		}, want: `
			default on-demand c.8 : map[web:3]
			`},
		{name: "on the node of another, which grows for it", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("side", "cpu=1500m", near("web", capacity.LabelHostname)))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=1500m")))
			return v
		}, want: `
			default on-demand c.4 : map[side:1 web:1]
			`},
		{name: "the first pod near its own kind, of which others match a part only", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 2, asking("web", "cpu=1500m", labelled("tier", "front"), nearLabel("tier", "front", capacity.LabelZone), near("web", capacity.LabelZone)),
				testNode("n1", "b", 0, 0, running("api", labelled("tier", "front"))))
		}, want: `
			default on-demand c.2 a: map[web:1]
			default on-demand c.2 a: map[web:1]
			`},
		{name: "near pods that match all terms, not near those that match one", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1500m", nearLabel("tier", "front", capacity.LabelZone), near("db", capacity.LabelZone)),
				testNode("n1", "b", 0, 0, running("db"), running("api", labelled("tier", "front"))), testNode("n2", "c", 0, 0, running("db", labelled("tier", "front"))))
		}, want: `
			default on-demand c.2 c: map[web:1]
			`},
		{name: "near pods of which none matches all terms", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1500m", nearLabel("tier", "front", capacity.LabelZone), near("db", capacity.LabelZone)),
				testNode("n1", "b", 0, 0, running("db"), running("api", labelled("tier", "front"))))
		}, want: `
			refused 1 web: default: no pod on a node with the label topology.kubernetes.io/zone matches the pod affinity
			`},
		{name: "terms over two keys: on one node, in any zone, as no other pod matches both", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 2, asking("web", "cpu=1500m", labelled("tier", "front"), nearLabel("tier", "front", capacity.LabelZone), near("web", capacity.LabelHostname)),
				testNode("n1", "b", 0, 0, running("api", labelled("tier", "front"))))
		}, want: `
			default on-demand c.4 a: map[web:2]
			`},
		{name: "near nothing", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelZone)))
		}, want: `
			refused 1 web: default: no pod on a node with the label topology.kubernetes.io/zone matches the pod affinity
			`},
		{name: "on the node of nothing", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelHostname)), testNode("n1", "a", 4, 8, running("api")))
		}, want: `
			refused 1 web: default: no pod on a node with the label kubernetes.io/hostname matches the pod affinity
			`},
		{name: "near pods, over a label that no node has", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", "foo.com/rack")), testNode("n1", "a", 0, 0, running("db")))
		}, want: `
			refused 1 web: default: pod affinity over foo.com/rack needs a label that none of the pool's possible nodes has
			`},
		{name: "near pods in a zone without nodes to launch", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelZone)), testNode("n1", "z", 0, 0, running("db")))
		}, want: `
			refused 1 web: default: pod affinity over topology.kubernetes.io/zone can't be met where nodes can be launched
			`},
		{name: "a preferred distance, as long as it can be had", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 4, asking("web", "cpu=100m", preferAway("web", capacity.LabelZone)))
		}, want: `
			default on-demand c.2 a: map[web:2]
			default on-demand c.2 b: map[web:1]
			default on-demand c.2 c: map[web:1]
			`},
		{name: "other namespaces are other pods", view: func(t *testing.T) *capacity.View {
			db := running("db", away("web", capacity.LabelHostname))
			db.Namespace = "elsewhere"
			return viewOf(t, 1, asking("web", "cpu=1"), testNode("n1", "a", 4, 8, db))
		}, want: `
			n1: map[web:1]
			`},
		{name: "unless a namespace selector says so", view: func(t *testing.T) *capacity.View {
			db := running("db", away("web", capacity.LabelHostname))
			db.Namespace = "elsewhere"
			db.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
			v := viewOf(t, 1, asking("web", "cpu=1"), testNode("n1", "a", 4, 8, db))
			v.Namespaces = func(ns string) labels.Set { return labels.Set{"team": map[string]string{"ns": "x"}[ns]} }
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "a host port once per node", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=100m", hostPortOf(80)), testNode("n1", "a", 4, 8, running("old", hostPortOf(80))))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("api", "cpu=100m", hostPortOf(443))))
			return v
		}, want: `
			n1: map[api:1]
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			`},
	})
}
