package planner

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// asking returns a pod of an app with requests, changed by the functions.
func asking(app, requests string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := testPod(app, strings.Fields(requests)...)
	p.Labels = map[string]string{"app": app}
	for _, f := range change {
		f(p)
	}
	return p
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func withSpread(key string, change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		s := corev1.TopologySpreadConstraint{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting(p.Labels["app"])}
		for _, f := range change {
			f(&s)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, s)
	}
}

func affinityOf(p *corev1.Pod) *corev1.Affinity {
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	return p.Spec.Affinity
}

func near(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAffinity == nil {
			a.PodAffinity = &corev1.PodAffinity{}
		}
		a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(app)})
	}
}

func away(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution,
			corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(app)})
	}
}

func preferAway(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: key, LabelSelector: selecting(app)}}}}
	}
}

func on(key string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = nodeAffinity(expr(key, "In", values...)).NodeAffinity
	}
}

func preferring(key string, values ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		a := affinityOf(p)
		if a.NodeAffinity == nil {
			a.NodeAffinity = &corev1.NodeAffinity{}
		}
		a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(10 - len(a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution)),
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{expr(key, "In", values...)}}})
	}
}

func hostPortOf(port int32) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: port, Protocol: corev1.ProtocolTCP})
	}
}

// running returns a pod of an app that is already on a node.
func running(app string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := asking(app, "", change...)
	p.Name = "running-" + app
	return p
}

type planCase struct {
	name string
	view func(t *testing.T) *capacity.View
	opts capacity.Options
	want string
}

func runPlans(t *testing.T, cases []planCase) {
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			v := tc.view(t)
			for i := range tc.opts.Forbidden {
				tc.opts.Forbidden[i].Class = v.Demand[0].Class.Key
			}
			p := Decide(v, tc.opts)
			if err := check(v, p, tc.opts); err != nil {
				t.Error(err)
			}
			want := strings.ReplaceAll(strings.TrimLeft(tc.want, "\n"), "\t", "")
			if diff := cmp.Diff(want, summary(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// viewOf returns a view with the default pool and demand for n pods like pod.
func viewOf(t *testing.T, n int, pod *corev1.Pod, nodes ...*capacity.Node) *capacity.View {
	return &capacity.View{Pools: []*capacity.Pool{testPool("default")}, Nodes: nodes, Demand: []capacity.Demand{demandOf(t, n, pod)}}
}

func TestPlanOfPlainPods(t *testing.T) {
	runPlans(t, []planCase{
		{name: "the cheapest machine for one pod", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("web", "cpu=1 memory=2Gi")) }, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "free room first, in flight or not", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "a", 2, 8)
			n.InFlight = true
			return viewOf(t, 3, asking("web", "cpu=1"), n)
		}, want: `
			n1: map[web:2]
			default on-demand c.2 : map[web:1]
			`},
		{name: "memory decides the family", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("db", "cpu=1 memory=14Gi")) }, want: `
			default on-demand r.2 : map[db:1]
			`},
		{name: "nothing is large enough", view: func(t *testing.T) *capacity.View { return viewOf(t, 2, asking("web", "cpu=64")) }, want: `
			refused 2 web: default: none of 12 instance types has capacity for it: cpu 64 requested, 15900m at most
			`},
		{name: "unschedulable nodes get nothing", view: func(t *testing.T) *capacity.View {
			n := testNode("n1", "a", 2, 8)
			n.Unschedulable = true
			return viewOf(t, 1, asking("web", "cpu=1"), n)
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "what the filters have refused is not proposed again", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"), testNode("n1", "a", 2, 8))
			v.Pools = append(v.Pools, testPool("other"))
			return v
		}, opts: capacity.Options{Forbidden: []capacity.Forbidden{{Node: "n1"}, {Pool: "default"}, {Pool: "other", Zone: "a"}}}, want: `
			other on-demand c.2 : map[web:1]
			`},
	})
}

func TestPlanOfNodeTerms(t *testing.T) {
	runPlans(t, []planCase{
		{name: "a zone by selector is fixed", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{capacity.LabelZone: "b"} }), testNode("n1", "a", 4, 8))
		}, want: `
			default on-demand c.2 b: map[web:1]
			`},
		{name: "any of several terms", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) {
				p.Spec.Affinity = nodeAffinity(expr("nowhere", "Exists"), expr("karpenter.k8s.aws/instance-cpu", "Gt", "4"))
			}))
		}, want: `
			default on-demand c.8 : map[web:1]
			`},
		{name: "NotIn and DoesNotExist are content with a label that is not there", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", func(p *corev1.Pod) {
				p.Spec.Affinity = nodeAffinity()
				p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []corev1.NodeSelectorTerm{
					{MatchExpressions: []corev1.NodeSelectorRequirement{expr("gpu", "DoesNotExist"), expr("team", "NotIn", "a"), expr("karpenter.k8s.aws/instance-family", "NotIn", "c")}}}
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
			c, err := capacity.ClassOf(v.Demand[0].Class.Pod, capacity.VolumeInfo{Topology: [][]capacity.Requirements{{capacity.LabelRequirements(map[string]string{capacity.LabelZone: "c"})}}})
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

func TestPlanOfTaintsAndDaemons(t *testing.T) {
	dedicated := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	tolerating := func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}
	}
	daemon := func(t *testing.T, requests string, change ...func(*corev1.Pod)) *capacity.DaemonSet {
		return &capacity.DaemonSet{Namespace: "kube-system", Name: "agent", Class: mustClass(t, asking("agent", requests, change...))}
	}
	runPlans(t, []planCase{
		{name: "a taint nobody tolerates", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{dedicated}
			return v
		}, want: `
			refused 1 web: default: taint dedicated=gpu:NoSchedule is not tolerated
			`},
		{name: "tolerated", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", tolerating))
			v.Pools[0].Taints = []corev1.Taint{dedicated}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "startup taints are somebody else's", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].StartupTaints = []corev1.Taint{dedicated}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "PreferNoSchedule sends pods to another pool, if there is one", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{{Key: "rather-not", Effect: corev1.TaintEffectPreferNoSchedule}}
			v.Pools[0].Weight = 10
			v.Pools = append(v.Pools, testPool("other"))
			return v
		}, want: `
			other on-demand c.2 : map[web:1]
			`},
		{name: "PreferNoSchedule is given up last", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools[0].Taints = []corev1.Taint{{Key: "rather-not", Effect: corev1.TaintEffectPreferNoSchedule}}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			`},
		{name: "daemons take their room on every new node", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=900m"))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "cpu=200m")}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			`},
		{name: "a daemon for other nodes takes nothing", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=900m"))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "cpu=200m", on(corev1.LabelArchStable, "arm64"))}
			return v
		}, want: `
			default on-demand c.2 : map[web:2]
			`},
		{name: "a daemon's host port is taken everywhere it runs", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1", hostPortOf(9100)))
			v.DaemonSets = []*capacity.DaemonSet{daemon(t, "", hostPortOf(9100), on("karpenter.k8s.aws/instance-family", "c", "r"))}
			return v
		}, want: `
			default on-demand m.2 : map[web:1]
			`},
	})
}

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
		{name: "near nothing", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", near("db", capacity.LabelZone)))
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

func TestPlanOfPools(t *testing.T) {
	pools := func(v *capacity.View, change func(a, b *capacity.Pool)) *capacity.View {
		v.Pools = []*capacity.Pool{testPool("a"), testPool("b")}
		change(v.Pools[0], v.Pools[1])
		return v
	}
	runPlans(t, []planCase{
		{name: "the heavier pool although it is dearer", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Weight, a.Types = 10, testTypes()[8:12] })
		}, want: `
			a on-demand r.2 : map[web:1]
			`},
		{name: "pools of equal weight compete on price", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Types = testTypes()[8:12] })
		}, want: `
			b on-demand c.2 : map[web:1]
			`},
		{name: "a limit sends the rest to the next pool", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 4, asking("web", "cpu=1500m")), func(a, b *capacity.Pool) {
				a.Weight, a.Limits, a.Used = 10, capacity.Resources{"cpu": 8000}, capacity.Resources{"cpu": 4000}
			})
		}, want: `
			a on-demand c.2 : map[web:1]
			a on-demand c.2 : map[web:1]
			b on-demand c.2 : map[web:1]
			b on-demand c.2 : map[web:1]
			`},
		{name: "a limit of nodes", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 3, asking("web", "cpu=100m", away("web", capacity.LabelHostname)))
			v.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 2}
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			refused 1 web: default: limit of nodes 2 reached: 0 left
			`},
		{name: "what is left of a limit goes to the highest priority", view: func(t *testing.T) *capacity.View {
			high := int32(100)
			v := viewOf(t, 1, asking("high", "cpu=1500m", func(p *corev1.Pod) { p.Spec.Priority = &high }))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("low", "cpu=1800m")))
			v.Pools[0].Limits = capacity.Resources{"cpu": 4000}
			v.Pools[0].Types = v.Pools[0].Types[:1]
			return v
		}, want: `
			default on-demand c.2 : map[high:1]
			default on-demand c.2 : map[low:1]
			refused 1 low: default: limit of cpu 4 reached: 0 left
			`},
		{name: "an unready pool", view: func(t *testing.T) *capacity.View {
			return pools(viewOf(t, 1, asking("web", "cpu=1")), func(a, b *capacity.Pool) { a.Weight, a.Unready = 10, "node class x has no subnets" })
		}, want: `
			b on-demand c.2 : map[web:1]
			`},
		{name: "nothing to be had", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			for _, typ := range v.Pools[0].Types {
				for i := range typ.Offers {
					typ.Offers[i].Available = false
				}
			}
			return v
		}, want: `
			refused 1 web: default: none of 12 instance types is available in the zones and capacity types it allows
			`},
		{name: "spot where it is allowed, and nobody is dragged along", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("web", "cpu=800m"))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("db", "cpu=800m", on(capacity.LabelCapacityType, "on-demand"))))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			return v
		}, want: `
			default on-demand c.2 : map[db:2]
			default spot c.2 : map[web:2]
			`},
		{name: "reserved capacity first, as far as it goes", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 5, asking("web", "cpu=1500m"))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			v.Pools[0].Types[9].Offers = append(v.Pools[0].Types[9].Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: 0.2e-7, Available: true, ReservationID: "cr-1", Remaining: 2})
			return v
		}, want: `
			default reserved r.4 b: map[web:2]
			default reserved r.4 b: map[web:2]
			default spot c.2 : map[web:1]
			`},
		{name: "of what is reserved the cheapest, too", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 3, asking("web", "cpu=1500m"))
			v.Pools[0].Requirements = capacity.Requirements{}.And(capacity.ValueIn(corev1.LabelArchStable, "amd64"))
			for i, x := range v.Pools[0].Types {
				if p := map[string]float64{"r.4": 0.2e-7, "c.2": 0.15e-7}[x.Name]; p > 0 {
					v.Pools[0].Types[i].Offers = append(x.Offers, capacity.Offer{Zone: "b", CapacityType: capacity.CapacityTypeReserved, Price: p, Available: true, ReservationID: "cr-" + x.Name, Remaining: 3})
				}
			}
			return v
		}, want: `
			default reserved r.4 b: map[web:2]
			default reserved c.2 b: map[web:1]
			`},
		{name: "a zone by its id", view: func(t *testing.T) *capacity.View {
			v := withOfferLabels(viewOf(t, 1, asking("web", "cpu=1")))
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(capacity.ValueIn("topology.k8s.aws/zone-id", "id-b"))
			return v
		}, want: `
			default on-demand c.2 b: map[web:1]
			`},
		{name: "a pod that asks for a zone by its id", view: func(t *testing.T) *capacity.View {
			return withOfferLabels(viewOf(t, 1, asking("web", "cpu=1", on("topology.k8s.aws/zone-id", "id-c"))))
		}, want: `
			default on-demand c.2 c: map[web:1]
			`},
		{name: "shared hardware is cheaper, and who asks for hardware of their own gets it", view: func(t *testing.T) *capacity.View {
			v := withOfferLabels(viewOf(t, 2, asking("web", "cpu=1500m")))
			v.Demand = append(v.Demand, demandOf(t, 1, asking("secret", "cpu=1500m", on("karpenter.k8s.aws/instance-tenancy", "dedicated"))))
			return v
		}, want: `
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[web:1]
			default on-demand c.2 : map[secret:1] dedicated
			`},
		{name: "a label that only offers have and none has", view: func(t *testing.T) *capacity.View {
			return viewOf(t, 1, asking("web", "cpu=1", on("topology.k8s.aws/zone-id", "id-c")))
		}, want: `
			refused 1 web: default: none of 12 instance types has topology.k8s.aws/zone-id in (id-c)
			`},
		{name: "minValues keeps families open", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1 memory=5Gi"))
			families, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
			families.MinValues = 3
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(families)
			return v
		}, want: `
			default on-demand m.2 : map[web:1]
			`},
		{name: "minValues that can't be kept", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1 memory=100Gi"))
			families, _ := capacity.NewRequirement("karpenter.k8s.aws/instance-family", capacity.Exists)
			families.MinValues = 3
			v.Pools[0].Requirements = v.Pools[0].Requirements.And(families)
			return v
		}, want: `
			refused 1 web: default: minValues: only 1 of 3 values of karpenter.k8s.aws/instance-family are possible
			`},
		{name: "a surcharge per node makes fewer of them", view: func(t *testing.T) *capacity.View { return viewOf(t, 20, asking("web", "cpu=900m")) }, opts: capacity.Options{NodeSurcharge: 0.1}, want: `
			default on-demand c.16 : map[web:17]
			default on-demand c.4 : map[web:3]
			`},
		{name: "a family that is worth less than its price", view: func(t *testing.T) *capacity.View { return viewOf(t, 1, asking("web", "cpu=1")) }, opts: capacity.Options{PriceFactor: map[string]float64{"c": 1.5}}, want: `
			default on-demand m.2 : map[web:1]
			`},
		{name: "no pool at all", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 1, asking("web", "cpu=1"))
			v.Pools = nil
			return v
		}, want: `
			refused 1 web: there is no node pool
			`},
	})
}

func TestPlanOfGangs(t *testing.T) {
	gang := func(v *capacity.View, missing int) *capacity.View {
		for i := range v.Demand {
			v.Demand[i].Gang = &capacity.Gang{Key: "ns/group", Missing: missing}
		}
		return v
	}
	runPlans(t, []planCase{
		{name: "all of a gang", view: func(t *testing.T) *capacity.View {
			v := viewOf(t, 2, asking("driver", "cpu=800m"))
			v.Demand = append(v.Demand, demandOf(t, 2, asking("worker", "cpu=1500m")))
			return gang(v, 4)
		}, want: `
			default on-demand c.4 : map[driver:1 worker:2]
			default on-demand c.2 : map[driver:1]
			`},
		{name: "nothing of a gang that is short, and others get its room", view: func(t *testing.T) *capacity.View {
			v := gang(viewOf(t, 3, asking("driver", "cpu=800m"), testNode("n1", "a", 2, 8)), 3)
			v.Pools[0].Limits = capacity.Resources{capacity.ResourceNodes: 0}
			v.Demand = append(v.Demand, demandOf(t, 1, asking("web", "cpu=800m")))
			return v
		}, want: `
			n1: map[web:1]
			refused 3 driver: not all of the 3 pods that its group needs can be placed; default: limit of nodes 0 reached: 0 left
			`},
	})
}

func TestPlacementsThatDependOnEachOther(t *testing.T) {
	v := viewOf(t, 3, asking("web", "cpu=800m", withSpread(capacity.LabelZone)))
	v.Demand = append(v.Demand, demandOf(t, 1, asking("plain", "cpu=800m")), demandOf(t, 2, asking("alone", "cpu=800m", away("alone", capacity.LabelHostname))),
		demandOf(t, 1, asking("front", "cpu=800m", near("web", capacity.LabelZone))), demandOf(t, 2, asking("other", "cpu=800m", withSpread(capacity.LabelZone))))
	p := Decide(v, capacity.Options{})
	if err := check(v, p, capacity.Options{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, pl := range p.Placements {
		got[pl.Class.Labels["app"]] = pl.Group
	}
	if diff := cmp.Diff(map[string]int{"web": 1, "front": 1, "plain": 0, "alone": 0, "other": 2}, got); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
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

// A refusal by a filter may be outdated in a moment, for instance once a volume is bound, and no event reports that: such pods are
// planned for again after a while. Pods that no offering has capacity for are not.
func TestRefusalsByFiltersAreTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		pods string
		want bool
	}{{"cpu=1", true}, {"cpu=64", false}} {
		v := viewOf(t, 1, asking("web", tc.pods))
		var opts capacity.Options
		if tc.want {
			opts.Forbidden = []capacity.Forbidden{{Class: v.Demand[0].Class.Key, Pool: "default", Reason: "VolumeBinding: the claim is not bound"}}
		}
		p := Decide(v, opts)
		if len(p.Refused) != 1 || p.Refused[0].Retryable != tc.want {
			t.Errorf("%s: refused %+v, want one that is retryable: %v", tc.pods, p.Refused, tc.want)
		}
	}
}
