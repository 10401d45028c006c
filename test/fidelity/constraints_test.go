package fidelity

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/daemons"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// TestEachConstraint checks every constraint that the planner knows against the scheduler's own filters, one by one.
func TestEachConstraint(t *testing.T) {
	j := newJudge(t, shared()...)
	for _, tc := range slices.Concat(resourceCases, nodeCases(), taintCases, spreadCases, podCases, volumeCases, daemonCases) {
		t.Run(tc.name, func(t *testing.T) {
			w := j.single(t, &tc, true)
			for _, check := range []func() error{w.accepted, w.nobodyLost, w.notInVain} {
				if err := check(); err != nil {
					t.Errorf("%v\n%s", err, w)
				}
			}
			if diff := cmp.Diff(tc.zones, w.zonesOf()); tc.zones != nil && diff != "" {
				t.Errorf("zones (-want +got):\n%s\n%s", diff, w)
			}
			if tc.nodes > 0 && len(w.plan.Nodes) != tc.nodes {
				t.Errorf("%d nodes, want %d\n%s", len(w.plan.Nodes), tc.nodes, w)
			}
			w.leave()
			if tc.by == "" {
				return
			}
			blind := j.single(t, &tc, false)
			defer blind.leave()
			refused := blind.verify(t, blind.asItIs(t, tc.pods))
			if !slices.ContainsFunc(refused, func(why string) bool { return strings.Contains(why, ": "+tc.by+": ") }) {
				t.Errorf("the filter %s has nothing against a plan that doesn't see the constraint, but others: %q\n%s", tc.by, refused, blind)
			}
		})
	}
}

func requests(p *corev1.Pod) corev1.ResourceList { return p.Spec.Containers[0].Resources.Requests }

var resourceCases = []single{
	{name: "requests", pods: pods("web", 3, "2"), by: "NodeResourcesFit", blind: func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }},
	{name: "the largest init container", pods: pods("web", 2, "100m", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: requesting("3", "1Gi")}}
	}), by: "NodeResourcesFit", blind: func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
	{name: "sidecars", pods: pods("web", 2, "1500m", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways), Resources: requesting("1", "64Mi")}}
	}), by: "NodeResourcesFit", blind: func(p *corev1.Pod) { p.Spec.InitContainers = nil }},
	{name: "overhead", pods: pods("web", 2, "1500m", func(p *corev1.Pod) { p.Spec.Overhead = corev1.ResourceList(requesting("1", "64Mi").Requests) }),
		by: "NodeResourcesFit", blind: func(p *corev1.Pod) { p.Spec.Overhead = nil }},
	{name: "requests of the pod as a whole", pods: pods("web", 2, "100m", func(p *corev1.Pod) { p.Spec.Resources = ptr.To(requesting("3", "1Gi")) }),
		by: "NodeResourcesFit", blind: func(p *corev1.Pod) { p.Spec.Resources = nil }},
	{name: "extended resources", pods: pods("web", 2, "100m", func(p *corev1.Pod) { requests(p)["nvidia.com/gpu"] = resource.MustParse("1") }),
		by: "NodeResourcesFit", blind: func(p *corev1.Pod) { delete(requests(p), "nvidia.com/gpu") }, nodes: 2},
	{name: "the number of pods", pods: pods("web", 120, "1m"), nodes: 2, by: "NodeResourcesFit", unseen: func(v *provisioning.Scene) {
		v.Pools = slices.Clone(v.Pools)
		for i, p := range v.Pools {
			other := *p
			other.Types = nil
			for _, typ := range p.Types {
				more := *typ
				more.Allocatable = typ.Allocatable.Clone()
				more.Allocatable["pods"] = 200
				other.Types = append(other.Types, &more)
			}
			v.Pools[i] = &other
		}
	}},
}

// nodeCases are the cases of node selectors and of each operator of node affinity. In each, the cheapest node doesn't satisfy the
// constraint, so another one must be chosen.
func nodeCases() []single {
	team := func(first bool) func(*scene) {
		return func(s *scene) {
			p := newPool("team", -1)
			if first {
				p.Weight = 1
			}
			p.Labels[teamKey] = "blue"
			s.pools = append(s.pools, p)
		}
	}
	none := func(p *corev1.Pod) { p.Spec.NodeSelector, p.Spec.Affinity = nil, nil }
	affine := func(key string, op corev1.NodeSelectorOperator, values ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			affinityOf(p).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: op, Values: values}}}}}}
		}
	}
	out := []single{
		{name: "a node selector", pods: pods("web", 1, "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{zoneKey: "z-c"} }), zones: []string{"z-c"}},
		{name: "a node selector on capacity type", pods: pods("web", 1, "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{ctKey: "on-demand"} })},
		{name: "node affinity In", pods: pods("web", 1, "1", affine(zoneKey, "In", "z-b", "z-c")), zones: []string{"z-b"}},
		{name: "node affinity NotIn", pods: pods("web", 1, "1", affine(ctKey, "NotIn", "spot"))},
		{name: "node affinity Exists", pods: pods("web", 1, "1", affine(teamKey, "Exists")), change: team(false)},
		{name: "node affinity DoesNotExist", pods: pods("web", 1, "1", affine(teamKey, "DoesNotExist")), change: team(true)},
		{name: "node affinity Gt", pods: pods("web", 1, "1", affine(cpuKey, "Gt", "4"))},
		{name: "node affinity Lt", pods: pods("web", 8, "1900m", affine(cpuKey, "Lt", "16")), nodes: 4},
		{name: "node affinity of several terms", pods: pods("web", 1, "1", affine(zoneKey, "In", "z-c"), func(p *corev1.Pod) {
			terms := &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			*terms = append(*terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: teamKey, Operator: "In", Values: []string{"red"}}}})
		}), zones: []string{"z-c"}},
	}
	for i := range out {
		out[i].by, out[i].blind = "NodeAffinity", none
	}
	return append(out, single{name: "preferred node affinity", pods: pods("web", 1, "1", func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zoneKey, Operator: "In", Values: []string{"z-c"}}}}}}}
	}), zones: []string{"z-c"}})
}

// special adds a tainted pool in zone z-b that has the highest weight.
func special(effect corev1.TaintEffect) func(*scene) {
	return func(s *scene) {
		p := newPool("special", 1)
		p.Taints = []corev1.Taint{{Key: "special", Effect: effect}}
		p.Requirements = p.Requirements.And(capacity.ValueIn(zoneKey, "z-b"))
		s.pools[0].Requirements = s.pools[0].Requirements.And(capacity.ValueIn(zoneKey, "z-c"))
		s.pools = append(s.pools, p)
	}
}

func untainted(v *provisioning.Scene) {
	v.Pools = slices.Clone(v.Pools)
	for i, p := range v.Pools {
		other := *p
		other.Taints = nil
		v.Pools[i] = &other
	}
}

var taintCases = []single{
	{name: "NoSchedule", pods: pods("web", 1, "1"), change: special(corev1.TaintEffectNoSchedule), unseen: untainted, by: "TaintToleration", zones: []string{"z-c"}},
	{name: "NoExecute", pods: pods("web", 1, "1"), change: special(corev1.TaintEffectNoExecute), unseen: untainted, by: "TaintToleration", zones: []string{"z-c"}},
	{name: "a toleration", pods: pods("web", 1, "1", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Key: "special", Operator: "Exists"}} }),
		change: special(corev1.TaintEffectNoSchedule), zones: []string{"z-b"}},
	{name: "a toleration of another effect", pods: pods("web", 1, "1", func(p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "special", Operator: "Exists", Effect: corev1.TaintEffectNoExecute}}
	}), change: special(corev1.TaintEffectNoSchedule), unseen: untainted, by: "TaintToleration", zones: []string{"z-c"}},
	{name: "PreferNoSchedule", pods: pods("web", 1, "1"), change: special(corev1.TaintEffectPreferNoSchedule), zones: []string{"z-c"}},
	{name: "PreferNoSchedule, and nothing else", pods: pods("web", 1, "1", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{zoneKey: "z-b"} }),
		change: special(corev1.TaintEffectPreferNoSchedule), zones: []string{"z-b"}},
	{name: "a cordoned node", pods: pods("web", 1, "1"), change: func(s *scene) { s.there("node", "z-b", 4).Spec.Unschedulable = true }, by: "NodeUnschedulable", nodes: 1,
		unseen: func(v *provisioning.Scene) {
			n := *v.Nodes[0]
			n.Unschedulable, n.Taints = false, nil
			v.Nodes = []*capacity.Node{&n}
		}},
}

func spreadOver(key string, change ...func(*corev1.TopologySpreadConstraint)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: selecting(p.Labels["app"])}
		for _, ch := range change {
			ch(&c)
		}
		p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, c)
	}
}

func selecting(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func label(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels[key] = value }
}

func inZones(zones ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: zoneKey, Operator: "In", Values: zones}}}}}}
	}
}

func unspread(p *corev1.Pod) { p.Spec.TopologySpreadConstraints = nil }

func spreadOf(p *corev1.Pod) *corev1.TopologySpreadConstraint {
	return &p.Spec.TopologySpreadConstraints[0]
}

var spreadCases = []single{
	{name: "spread over zones", pods: pods("web", 3, "100m", spreadOver(zoneKey)), change: func(s *scene) { s.full(zones...) }, blind: unspread, by: "PodTopologySpread", nodes: 3},
	{name: "spread over hosts", pods: pods("web", 3, "100m", spreadOver(hostKey)), change: func(s *scene) { s.full("z-a") }, blind: unspread, by: "PodTopologySpread", nodes: 3},
	{name: "spread over capacity types", pods: pods("web", 2, "100m", spreadOver(ctKey)), change: func(s *scene) { s.full("z-a") }, blind: unspread, by: "PodTopologySpread", nodes: 2},
	{name: "spread over a label of the pools", pods: pods("web", 2, "100m", spreadOver(teamKey)), blind: unspread, by: "PodTopologySpread", nodes: 2, change: func(s *scene) {
		s.pools[0].Requirements = s.pools[0].Requirements.And(capacity.ValueIn(teamKey, "blue", "red"))
		s.there("blue", "z-a", 0).Labels[teamKey] = "blue"
		s.there("red", "z-a", 0).Labels[teamKey] = "red"
	}},
	{name: "a skew of two", pods: pods("web", 4, "100m", spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = 2 })),
		change: func(s *scene) { s.full("z-a", "z-b") }, blind: unspread, by: "PodTopologySpread"},
	{name: "pods that run count for spreading", pods: pods("web", 2, "100m", spreadOver(zoneKey)), by: "PodTopologySpread", zones: []string{"z-b", "z-c"},
		change: func(s *scene) { s.full("z-b", "z-c"); s.there("node", "z-a", 0, pods("web", 1, "0")...) },
		unseen: func(v *provisioning.Scene) {
			for i, n := range v.Nodes {
				other := *n
				other.Pods = nil
				v.Nodes[i] = &other
			}
		}},
	{name: "ScheduleAnyway", pods: pods("web", 3, "100m", spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = corev1.ScheduleAnyway })),
		change: func(s *scene) { s.full(zones...) }, nodes: 3},
	{name: "minDomains", pods: pods("web", 2, "100m", inZones("z-a", "z-b"), spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) { c.MinDomains = ptr.To(int32(2)) })),
		change: func(s *scene) { s.there("node", "z-a", 4) }, blind: func(p *corev1.Pod) { spreadOf(p).MinDomains = nil }, by: "PodTopologySpread", zones: []string{"z-a", "z-b"}},
	{name: "nodeAffinityPolicy Ignore", pods: pods("web", 3, "100m", inZones("z-a", "z-b"), spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) {
		c.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
	})), change: func(s *scene) { s.full(zones...) }, blind: func(p *corev1.Pod) { spreadOf(p).NodeAffinityPolicy = nil }, by: "PodTopologySpread", zones: []string{"z-a", "z-b", "refused"}},
	{name: "nodeAffinityPolicy Honor", pods: pods("web", 3, "100m", inZones("z-a", "z-b"), spreadOver(zoneKey)), change: func(s *scene) { s.full(zones...) },
		zones: []string{"z-a", "z-b", "z-a"}},
	{name: "nodeTaintsPolicy Ignore", pods: pods("web", 3, "100m", spreadOver(zoneKey)), change: tainted,
		blind: func(p *corev1.Pod) { spreadOf(p).NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor) }, by: "PodTopologySpread", zones: []string{"z-a", "z-b", "refused"}},
	{name: "nodeTaintsPolicy Honor", pods: pods("web", 3, "100m", spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) {
		c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
	})), change: tainted, zones: []string{"z-a", "z-b", "z-a"}},
	{name: "matchLabelKeys", pods: pods("web", 2, "100m", label("rev", "2"), spreadOver(zoneKey, func(c *corev1.TopologySpreadConstraint) { c.MatchLabelKeys = []string{"rev"} })),
		blind: func(p *corev1.Pod) { spreadOf(p).MatchLabelKeys = nil }, by: "PodTopologySpread", nodes: 2, change: func(s *scene) {
			s.full("z-c")
			for _, z := range []string{"z-a", "z-b"} {
				s.there("node-"+z, z, 0, pods("web-"+z, 2, "0", label("app", "web"), label("rev", "1"))...)
			}
		}},
}

// tainted is a world in which no node can be launched in zone z-c, and the existing node there has a taint.
func tainted(s *scene) {
	s.full(zones...)
	s.nodes[2].Spec.Taints = []corev1.Taint{{Key: "special", Effect: corev1.TaintEffectNoSchedule}}
	s.pools[0].Requirements = s.pools[0].Requirements.And(capacity.ValueIn(zoneKey, "z-a", "z-b"))
}

func apart(app, key string, change ...func(*corev1.PodAffinityTerm)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		term := corev1.PodAffinityTerm{LabelSelector: selecting(app), TopologyKey: key}
		for _, c := range change {
			c(&term)
		}
		affinityOf(p).PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
}

func together(app, key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		affinityOf(p).PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: selecting(app), TopologyKey: key}}}
	}
}

func unaffine(p *corev1.Pod) { p.Spec.Affinity = nil }

func port(ip string, protocol corev1.Protocol) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, HostIP: ip, Protocol: protocol}}
	}
}

// beside puts a pod of app db, in the given namespace, on a node with free capacity in the cheapest zone.
func beside(namespace string, change ...func(*corev1.Pod)) func(*scene) {
	return func(s *scene) {
		db := pods("db", 1, "0", change...)
		db[0].Namespace = namespace
		s.there("node", "z-a", 4, db...)
	}
}

var podCases = []single{
	{name: "anti-affinity by host", pods: pods("web", 3, "100m", apart("web", hostKey)), blind: unaffine, by: "InterPodAffinity", nodes: 3},
	{name: "anti-affinity by zone", pods: pods("web", 3, "100m", apart("web", zoneKey)), change: func(s *scene) { s.there("node", "z-a", 4) }, blind: unaffine,
		by: "InterPodAffinity", zones: []string{"z-a", "z-b", "z-c"}},
	{name: "anti-affinity to pods that run", pods: pods("web", 1, "100m", apart("db", zoneKey)), change: beside("default"), blind: unaffine, by: "InterPodAffinity", zones: []string{"z-b"}},
	{name: "anti-affinity of pods that run", pods: pods("web", 1, "100m"), change: beside("default", apart("web", zoneKey)), by: "InterPodAffinity", zones: []string{"z-b"},
		unseen: func(v *provisioning.Scene) {
			n := *v.Nodes[0]
			n.Pods = nil
			v.Nodes = []*capacity.Node{&n}
		}},
	{name: "anti-affinity of one kind to another, planned together", by: "InterPodAffinity", blind: unaffine, nodes: 2,
		pods: slices.Concat(pods("db", 1, "100m", apart("web", hostKey)), pods("web", 1, "100m"))},
	{name: "anti-affinity in another namespace", change: beside("other"), blind: unaffine, by: "InterPodAffinity", zones: []string{"z-b"},
		pods: pods("web", 1, "100m", apart("db", zoneKey, func(t *corev1.PodAffinityTerm) { t.Namespaces = []string{"other"} }))},
	{name: "anti-affinity in namespaces by their labels", change: beside("other"), blind: unaffine, by: "InterPodAffinity", zones: []string{"z-b"},
		pods: pods("web", 1, "100m", apart("db", zoneKey, func(t *corev1.PodAffinityTerm) {
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "back"}}
		}))},
	{name: "anti-affinity in one's own namespace only", change: beside("other"), pods: pods("web", 1, "100m", apart("db", zoneKey)), zones: []string{"z-a"}},
	{name: "affinity by zone", pods: pods("web", 1, "100m", together("db", zoneKey)), by: "InterPodAffinity", zones: []string{"z-c"},
		change: func(s *scene) { s.there("node", "z-c", 0, pods("db", 1, "0")...) }, blind: unaffine},
	{name: "affinity by host", pods: pods("web", 1, "100m", together("db", hostKey)), by: "InterPodAffinity", zones: []string{"z-c"}, blind: unaffine,
		change: func(s *scene) { s.there("free", "z-a", 4); s.there("node", "z-c", 4, pods("db", 1, "0")...) }},
	{name: "affinity to one's own kind", pods: pods("web", 9, "1900m", together("web", hostKey)), by: "InterPodAffinity", nodes: 1, blind: unaffine,
		zones: []string{"", "", "", "", "", "", "", "", "refused"}},
	{name: "preferred anti-affinity", pods: pods("web", 2, "100m", func(p *corev1.Pod) {
		apart("web", hostKey)(p)
		a := p.Spec.Affinity.PodAntiAffinity
		a.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: a.RequiredDuringSchedulingIgnoredDuringExecution[0]}}
		a.RequiredDuringSchedulingIgnoredDuringExecution = nil
	}), nodes: 2},
	{name: "host ports", pods: pods("web", 2, "100m", port("", corev1.ProtocolTCP)), by: "NodePorts", blind: func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }, nodes: 2},
	{name: "host ports of all addresses", by: "NodePorts", blind: func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil }, nodes: 2,
		pods: slices.Concat(pods("db", 1, "100m", port("127.0.0.1", corev1.ProtocolTCP)), pods("web", 1, "100m", port("0.0.0.0", corev1.ProtocolTCP)))},
	{name: "host ports of different addresses", nodes: 1,
		pods: slices.Concat(pods("db", 1, "100m", port("127.0.0.1", corev1.ProtocolTCP)), pods("web", 1, "100m", port("127.0.0.2", corev1.ProtocolTCP)))},
	{name: "host ports of different protocols", nodes: 1,
		pods: slices.Concat(pods("db", 1, "100m", port("", corev1.ProtocolUDP)), pods("web", 1, "100m", port("", corev1.ProtocolTCP)))},
}

func mounting(claim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	}
}

func unmounted(p *corev1.Pod) { p.Spec.Volumes = nil }

var volumeCases = []single{
	{name: "a volume's zone", pods: pods("web", 1, "100m", mounting("data-z-b")), blind: unmounted, by: "VolumeBinding", zones: []string{"z-b"}},
	{name: "zones where a volume can be made", pods: pods("web", 1, "100m", mounting("new-zoned")), blind: unmounted, by: "VolumeBinding", zones: []string{"z-b"},
		change: func(s *scene) {
			s.pools[0].Requirements = s.pools[0].Requirements.And(capacity.ValueIn(zoneKey, "z-b"))
			p := newPool("first", 1)
			p.Requirements = p.Requirements.And(capacity.ValueIn(zoneKey, "z-c"))
			s.pools = append(s.pools, p)
		}},
	{name: "volumes that a node may attach", pods: pods("web", 1, "100m", mounting("new-anywhere")), blind: unmounted, by: "NodeVolumeLimits", nodes: 1,
		change: func(s *scene) { s.there("node-0", "z-a", 4) }},
	{name: "volumes that a type may attach", nodes: 2, change: func(s *scene) {
		for _, typ := range s.pools[0].Types {
			typ.VolumeLimits = map[string]int64{ebs: 1}
		}
	}, pods: slices.Concat(pods("db", 1, "100m", mounting("data-z-b")), pods("web", 1, "100m", mounting("new-anywhere")))},
}

// agent adds a DaemonSet that runs on all nodes.
func agent(change func(*corev1.PodSpec)) func(*scene) {
	return func(s *scene) {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "agent", UID: "agent"}}
		ds.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main", Resources: requesting("10m", "10Mi")}}
		change(&ds.Spec.Template.Spec)
		s.daemons = daemonSets(ds)
	}
}

// daemonSets returns the DaemonSets in the form the planner uses.
func daemonSets(sets ...*appsv1.DaemonSet) []*capacity.DaemonSet {
	d, err := daemons.New(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	if err != nil {
		panic(err)
	}
	for _, ds := range sets {
		d.ObserveSet(ds)
	}
	return d.List()
}

func undaemoned(v *provisioning.Scene) { v.DaemonSets = nil }

var daemonCases = []single{
	{name: "what DaemonSets take", pods: pods("web", 1, "3500m"), unseen: undaemoned, by: "NodeResourcesFit",
		change: agent(func(s *corev1.PodSpec) { s.Containers[0].Resources = requesting("1", "1Gi") })},
	{name: "host ports of DaemonSets", pods: pods("web", 1, "100m", port("", corev1.ProtocolTCP)), unseen: undaemoned, by: "NodePorts", zones: []string{"z-c"},
		change: func(s *scene) {
			agent(func(s *corev1.PodSpec) {
				s.NodeSelector = map[string]string{zoneKey: "z-a"}
				s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80, Protocol: corev1.ProtocolTCP}}
			})(s)
			s.pools[0].Requirements = s.pools[0].Requirements.And(capacity.ValueIn(zoneKey, "z-a", "z-c"))
		}},
}
