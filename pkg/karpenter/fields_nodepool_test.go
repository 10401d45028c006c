package karpenter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestEveryFieldOfNodePool tests the effects of a pool's fields on the capacity.Pool, on a claim of the pool and on the claim's Node.
func TestEveryFieldOfNodePool(t *testing.T) {
	k := &kindOfFields{
		kind: "NodePool",
		base: `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, uid: uid-of-pool-default, generation: 1}
spec: {disruption: {consolidateAfter: 0s}, template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}}}
`,
		more: func(t *testing.T, u *unstructured.Unstructured) []string {
			np := used[*karpv1.NodePool](t, u, NodePools.New)
			if why := Malformed(np); why != "" {
				return strings.Split(why, "; ")
			}
			return fieldTexts(ValidatePool(np, classKind))
		},
		see: func(t *testing.T, u *unstructured.Unstructured, at string) string {
			np := used[*karpv1.NodePool](t, u, NodePools.New)
			p := PoolOf(np, classKind)
			nc, err := NodeClaimOf(testClaim("default-1", func(c *capacity.Claim) { c.Labels, c.Annotations, c.Taints, c.StartupTaints = nil, nil, nil, nil }), np, &Batches{})
			if err != nil {
				t.Fatal(err)
			}
			nc.SetGroupVersionKind(NodeClaims.GroupVersionKind)
			if err := acceptable(nc, ""); err != nil {
				t.Errorf("the claim: %v", err)
			}
			node := NodeFor(ClaimOf(nc, classKind), testInstance, nil)
			switch {
			case strings.HasPrefix(at, "template.metadata.labels"):
				return fmt.Sprintf("pool %s, asked for %v, claim %s, node %s", p.Labels["team"], p.Requirements["team"], nc.Labels["team"], node.Labels["team"])
			case strings.HasPrefix(at, "template.metadata.annotations"):
				return fmt.Sprintf("claim %s, node %s", nc.Annotations["example.com/note"], node.Annotations["example.com/note"])
			case strings.HasPrefix(at, "template.spec.taints"):
				return fmt.Sprintf("pool %s, claim %s, node %s", asJSON(p.Taints), asJSON(nc.Spec.Taints), asJSON(node.Spec.Taints))
			case strings.HasPrefix(at, "template.spec.startupTaints"):
				return fmt.Sprintf("pool %s, claim %s, node %s", asJSON(p.StartupTaints), asJSON(nc.Spec.StartupTaints), asJSON(node.Spec.Taints))
			case strings.HasPrefix(at, "template.spec.requirements"):
				var asked []string
				for _, key := range []string{"kubernetes.io/arch", "karpenter.k8s.aws/instance-cpu", "topology.kubernetes.io/region", "team"} {
					if r, ok := p.Requirements[key]; ok {
						asked = append(asked, fmt.Sprintf("%s min %d", r, r.MinValues))
					}
				}
				var claimed []string
				for _, r := range nc.Spec.Requirements {
					if !slices.Contains([]string{"node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass"}, r.Key) {
						claimed = append(claimed, asJSON(r))
					}
				}
				return fmt.Sprintf("pool %s; claim %s", strings.Join(asked, ", "), strings.Join(claimed, ", "))
			case strings.HasPrefix(at, "template.spec.nodeClassRef"):
				return fmt.Sprintf("pool %s %s, claim %s %s, node %s", p.NodeClass, p.Labels["karpenter.k8s.aws/ec2nodeclass"], asJSON(nc.Spec.NodeClassRef), nc.Labels["karpenter.k8s.aws/ec2nodeclass"], node.Labels["karpenter.k8s.aws/ec2nodeclass"])
			case at == "template.spec.expireAfter":
				return "claim " + asJSON(nc.Spec.ExpireAfter)
			case at == "template.spec.terminationGracePeriod":
				return "claim " + asJSON(nc.Spec.TerminationGracePeriod)
			case at == "limits":
				return fmt.Sprint("pool ", p.Limits)
			case at == "weight":
				return fmt.Sprint("pool ", p.Weight)
			case at == "replicas":
				return fmt.Sprint("pool ", *p.Replicas)
			}
			return asJSON(np.Spec.Disruption)
		},
	}
	long := strings.Repeat("a", 64)
	longKey := strings.Repeat("a.", 130) + "com/" + strings.Repeat("b", 60)
	many := func(n int, one string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(one+", ", n), ", ") + "]"
	}
	manyLabels := "{"
	for i := range 101 {
		manyLabels += fmt.Sprintf("l%d: v, ", i)
	}
	manyLabels += "l: v}"
	taints := "template.spec.taints"
	startup := "template.spec.startupTaints"
	requirements := "template.spec.requirements"
	k.run(t, []fieldCase{
		{
			fields: []string{"template.metadata.labels{}"}, at: "template.metadata.labels", valid: "{team: a}",
			want: "pool a, asked for team in (a), claim a, node a",
			invalid: append(refusedAs("spec.template.metadata.labels", "{team: "+long+"}", "{team: -a}", "{karpenter.sh/nodepool: x}", "{karpenter.sh/other: x}",
				"{sub.karpenter.sh/x: y}", "{kubernetes.io/hostname: x}", "{karpenter.k8s.aws/other: x}", "{'a b': x}", "{'': x}", manyLabels), wrong{"[a]", "spec.template.metadata.labels"}),
		},
		{
			fields: []string{"template.metadata.annotations{}"}, at: "template.metadata.annotations", valid: "{example.com/note: seen}",
			want: "claim seen, node seen", invalid: refusedAs("spec.template.metadata.annotations", "{example.com/note: 3}", "seen"),
		},
		{
			fields: []string{"template.spec.taints[].key", "template.spec.taints[].value", "template.spec.taints[].effect", "template.spec.taints[].timeAdded"},
			at:     taints, valid: `[{key: team, value: a, effect: NoSchedule, timeAdded: "2026-03-01T12:00:00Z"}]`,
			want: `pool [{"key":"team","value":"a","effect":"NoSchedule","timeAdded":"2026-03-01T12:00:00Z"}], claim [{"key":"team","value":"a","effect":"NoSchedule","timeAdded":"2026-03-01T12:00:00Z"}], ` +
				`node [{"key":"team","value":"a","effect":"NoSchedule","timeAdded":"2026-03-01T12:00:00Z"},{"key":"karpenter.sh/unregistered","effect":"NoSchedule"}]`,
			invalid: []wrong{
				{`[{key: "", effect: NoSchedule}]`, "spec." + taints + "[0].key"}, {`[{effect: NoSchedule}]`, "spec." + taints + "[0].key"}, {`[{key: "a b", effect: NoSchedule}]`, "spec." + taints + "[0].key"},
				{`[{key: a, value: "b c", effect: NoSchedule}]`, "spec." + taints + "[0].value"}, {`[{key: a, value: ` + long + `, effect: NoSchedule}]`, "spec." + taints + "[0].value"},
				{`[{key: a, effect: Sometimes}]`, "spec." + taints + "[0].effect"}, {`[{key: a, effect: ""}]`, "spec." + taints + "[0].effect"}, {`[{key: a}]`, "spec." + taints + "[0].effect"},
				{`[{key: a, effect: NoSchedule, timeAdded: yesterday}]`, "spec." + taints + "[0].timeAdded"},
				{`[{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]`, "spec." + taints + "[1]"},
			},
		},
		{
			fields: []string{"template.spec.startupTaints[].key", "template.spec.startupTaints[].value", "template.spec.startupTaints[].effect", "template.spec.startupTaints[].timeAdded"},
			at:     startup, valid: `[{key: cni, value: a, effect: NoExecute, timeAdded: "2026-03-01T12:00:00Z"}]`,
			want: `pool [{"key":"cni","value":"a","effect":"NoExecute","timeAdded":"2026-03-01T12:00:00Z"}], claim [{"key":"cni","value":"a","effect":"NoExecute","timeAdded":"2026-03-01T12:00:00Z"}], ` +
				`node [{"key":"cni","value":"a","effect":"NoExecute","timeAdded":"2026-03-01T12:00:00Z"},{"key":"karpenter.sh/unregistered","effect":"NoSchedule"}]`,
			invalid: []wrong{
				{`[{key: "", effect: NoSchedule}]`, "spec." + startup + "[0].key"}, {`[{key: a, value: "b c", effect: NoSchedule}]`, "spec." + startup + "[0].value"},
				{`[{key: a, effect: Sometimes}]`, "spec." + startup + "[0].effect"}, {`[{key: a, effect: NoSchedule, timeAdded: 3}]`, "spec." + startup + "[0].timeAdded"},
			},
		},
		{
			fields: []string{requirements + "[].key", requirements + "[].operator", requirements + "[].values[]", requirements + "[].minValues"},
			at:     requirements, valid: `[{key: kubernetes.io/arch, operator: In, values: [amd64, arm64], minValues: 2}, {key: karpenter.k8s.aws/instance-cpu, operator: Gt, values: ["3"]},
				{key: karpenter.k8s.aws/instance-cpu, operator: Lte, values: ["16"]}, {key: topology.kubernetes.io/region, operator: Exists}, {key: team, operator: In, values: [a]}]`,
			want: `pool kubernetes.io/arch in (amd64,arm64) min 2, karpenter.k8s.aws/instance-cpu >= 4 <= 16 min 0, topology.kubernetes.io/region exists min 0, team in (a) min 0; ` +
				`claim {"key":"kubernetes.io/arch","operator":"In","values":["amd64","arm64"],"minValues":2}, {"key":"karpenter.k8s.aws/instance-cpu","operator":"Gt","values":["3"]}, ` +
				`{"key":"karpenter.k8s.aws/instance-cpu","operator":"Lte","values":["16"]}, {"key":"topology.kubernetes.io/region","operator":"Exists"}, {"key":"team","operator":"In","values":["a"]}`,
			invalid: []wrong{
				{"null", "spec." + requirements}, {many(101, "{key: a, operator: Exists}"), "spec." + requirements},
				{`[{key: karpenter.sh/nodepool, operator: In, values: [x]}]`, "spec." + requirements + "[0].key"}, {`[{key: karpenter.sh/other, operator: Exists}]`, "spec." + requirements + "[0].key"},
				{`[{key: kubernetes.io/hostname, operator: Exists}]`, "spec." + requirements + "[0].key"}, {`[{key: karpenter.k8s.aws/other, operator: Exists}]`, "spec." + requirements + "[0].key"},
				{`[{key: "a b", operator: Exists}]`, "spec." + requirements + "[0].key"}, {`[{key: ` + longKey + `, operator: Exists}]`, "spec." + requirements + "[0].key"}, {`[{operator: Exists}]`, "spec." + requirements + "[0].key"},
				{`[{key: a, operator: Near, values: [x]}]`, "spec." + requirements + "[0].operator"}, {`[{key: a}]`, "spec." + requirements + "[0].operator"},
				{`[{key: a, operator: In}]`, "spec." + requirements}, {`[{key: a, operator: In, values: []}]`, "spec." + requirements},
				{`[{key: a, operator: In, values: ["b c"]}]`, "spec." + requirements + "[0].values[0]"}, {`[{key: a, operator: In, values: [` + long + `]}]`, "spec." + requirements + "[0].values"},
				{`[{key: a, operator: Exists, values: [x]}]`, "spec." + requirements + "[0].values"}, {`[{key: a, operator: DoesNotExist, values: [x]}]`, "spec." + requirements + "[0].values"},
				{`[{key: a, operator: Gt, values: ["1", "2"]}]`, "spec." + requirements}, {`[{key: a, operator: Lt, values: ["-1"]}]`, "spec." + requirements}, {`[{key: a, operator: Gte, values: [x]}]`, "spec." + requirements}, {`[{key: a, operator: Lte}]`, "spec." + requirements},
				{`[{key: karpenter.sh/capacity-type, operator: In, values: [cheap]}]`, "spec." + requirements + "[0].values"}, {`[{key: karpenter.k8s.aws/instance-tenancy, operator: In, values: [mine]}]`, "spec." + requirements + "[0].values"},
				{`[{key: a, operator: In, values: [x], minValues: 2}]`, "spec." + requirements}, {`[{key: a, operator: Exists, minValues: 51}]`, "spec." + requirements + "[0].minValues"}, {`[{key: a, operator: Exists, minValues: 0}]`, "spec." + requirements + "[0].minValues"},
				{`[{key: karpenter.sh/capacity-type, operator: In, values: [spot, cheap], minValues: 2}]`, "spec." + requirements + "[0].minValues"},
			},
		},
		{
			fields: []string{"template.spec.nodeClassRef.group", "template.spec.nodeClassRef.kind", "template.spec.nodeClassRef.name"},
			at:     "template.spec.nodeClassRef", valid: `{group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}`,
			want: `pool gpu gpu, claim {"kind":"EC2NodeClass","name":"gpu","group":"karpenter.k8s.aws"} gpu, node gpu`,
			invalid: []wrong{
				{"null", "spec.template.spec.nodeClassRef"}, {`{group: "", kind: EC2NodeClass, name: x}`, "spec.template.spec.nodeClassRef.group"}, {`{group: a/b, kind: EC2NodeClass, name: x}`, "spec.template.spec.nodeClassRef.group"},
				{`{group: karpenter.azure.com, kind: EC2NodeClass, name: x}`, "spec.template.spec.nodeClassRef.group"}, {`{group: karpenter.k8s.aws, kind: "", name: x}`, "spec.template.spec.nodeClassRef.kind"},
				{`{group: karpenter.k8s.aws, kind: NodeClass, name: x}`, "spec.template.spec.nodeClassRef.kind"}, {`{group: karpenter.k8s.aws, kind: EC2NodeClass, name: ""}`, "spec.template.spec.nodeClassRef.name"},
				{`{group: karpenter.k8s.aws, kind: EC2NodeClass}`, "spec.template.spec.nodeClassRef.name"},
			},
		},
		{
			fields: []string{"template.spec.expireAfter"}, at: "template.spec.expireAfter", valid: "36h30m", want: `claim "36h30m"`,
			invalid: refusedAs("spec.template.spec.expireAfter", "-1h", "2d", "soon", "3", "9999999h"),
		},
		{
			fields: []string{"template.spec.terminationGracePeriod"}, at: "template.spec.terminationGracePeriod", valid: "90s", want: `claim "1m30s"`,
			invalid: refusedAs("spec.template.spec.terminationGracePeriod", "-1h", "Never", "2d", "9999999h"),
		},
		{
			fields: []string{"limits{}"}, at: "limits", valid: "{cpu: 100, memory: 1Ti, nodes: 9, nvidia.com/gpu: 4}",
			want: "pool map[cpu:100000 memory:1099511627776 nodes:9 nvidia.com/gpu:4]", invalid: refusedAs("spec.limits", "{cpu: -1}", "{cpu: lots}", "3"),
		},
		{fields: []string{"weight"}, at: "weight", valid: "50", want: "pool 50", invalid: refusedAs("spec.weight", "0", "101", "heavy", "1.5")},
		{fields: []string{"replicas"}, at: "replicas", valid: "3", want: "pool 3", invalid: refusedAs("spec.replicas", "-1", "some")},
		{
			fields: []string{"disruption.consolidateAfter"}, at: "disruption.consolidateAfter", valid: "5m",
			want: `{"consolidateAfter":"5m","consolidationPolicy":"WhenEmptyOrUnderutilized","budgets":[{"nodes":"10%"}]}`, invalid: refusedAs("spec.disruption.consolidateAfter", "-1m", "soon", "9999999h"),
		},
		{
			fields: []string{"disruption.consolidationPolicy"}, at: "disruption", valid: "{consolidateAfter: Never, consolidationPolicy: Balanced}",
			want: `{"consolidateAfter":"Never","consolidationPolicy":"Balanced","budgets":[{"nodes":"10%"}]}`, invalid: []wrong{{"{consolidateAfter: 0s, consolidationPolicy: Always}", "spec.disruption.consolidationPolicy"}},
		},
		{
			fields: []string{"disruption.budgets[].nodes", "disruption.budgets[].schedule", "disruption.budgets[].duration", "disruption.budgets[].reasons[]"},
			at:     "disruption.budgets", valid: `[{nodes: "3", schedule: "0 9 * * mon-fri", duration: 8h30m, reasons: [Empty, Drifted]}, {nodes: 50%, schedule: "@daily", duration: 10m}]`,
			want: `{"consolidateAfter":"0s","consolidationPolicy":"WhenEmptyOrUnderutilized","budgets":[{"reasons":["Empty","Drifted"],"nodes":"3","schedule":"0 9 * * mon-fri","duration":"8h30m0s"},{"nodes":"50%","schedule":"@daily","duration":"10m0s"}]}`,
			invalid: []wrong{
				{`[{nodes: "-1"}]`, "spec.disruption.budgets[0].nodes"}, {`[{nodes: 101%}]`, "spec.disruption.budgets[0].nodes"}, {`[{nodes: some}]`, "spec.disruption.budgets[0].nodes"},
				{`[{nodes: "1", schedule: "@daily"}]`, "spec.disruption.budgets"}, {`[{nodes: "1", duration: 1h}]`, "spec.disruption.budgets"},
				{`[{nodes: "1", schedule: sometimes, duration: 1h}]`, "spec.disruption.budgets[0].schedule"}, {`[{nodes: "1", schedule: "a b c d e", duration: 1h}]`, "spec.disruption.budgets[0].schedule"},
				{`[{nodes: "1", schedule: "@daily", duration: 30s}]`, "spec.disruption.budgets[0].duration"}, {`[{nodes: "1", schedule: "@daily", duration: -1h}]`, "spec.disruption.budgets[0].duration"}, {`[{nodes: "1", schedule: "@daily", duration: 9999999h}]`, "spec.disruption.budgets[0].duration"},
				{`[{nodes: "1", reasons: [Boredom]}]`, "spec.disruption.budgets[0].reasons[0]"}, {`[{nodes: "1", reasons: [Empty, Empty]}]`, "spec.disruption.budgets[0].reasons[1]"},
				{many(51, `{nodes: "1"}`), "spec.disruption.budgets"},
			},
		},
	})
	for name, tc := range map[string]struct{ before, after, names string }{
		"a dynamic pool stays dynamic":      {"{}", "{replicas: 1}", "spec"},
		"a static pool stays static":        {"{replicas: 1}", "{}", "spec"},
		"a static pool has no weight":       {"", "{replicas: 1, weight: 5}", "spec"},
		"a static pool limits only nodes":   {"", "{replicas: 1, limits: {cpu: 5}}", "spec"},
		"the kind of the class is for ever": {"{template: {spec: {nodeClassRef: {group: a, kind: A, name: x}, requirements: []}}}", "{template: {spec: {nodeClassRef: {group: a, kind: B, name: x}, requirements: []}}}", "spec.template.spec.nodeClassRef"},
	} {
		t.Run(name, func(t *testing.T) {
			build := func(spec string) *unstructured.Unstructured {
				u := fromYAML(t, k.base)
				for key, value := range fromYAML(t, "{apiVersion: v1, kind: X, spec: "+spec+"}").Object["spec"].(map[string]any) {
					u.Object["spec"].(map[string]any)[key] = value
				}
				return u
			}
			var old *unstructured.Unstructured
			if tc.before != "" {
				old = build(tc.before)
			}
			if !slices.ContainsFunc(fieldTexts(shipped.admit(build(tc.after), old)), func(e string) bool { return strings.HasPrefix(e, tc.names+":") }) {
				t.Errorf("%s after %s: %v, want %s refused", tc.after, tc.before, shipped.admit(build(tc.after), old), tc.names)
			}
		})
	}
	for _, crd := range nodeclass.CRDs() {
		if scale := crd.Spec.Versions[0].Subresources.Scale; crd.Spec.Names.Kind == k.kind && (scale == nil || scale.SpecReplicasPath != ".spec.replicas" || scale.StatusReplicasPath != ".status.nodes") {
			t.Errorf("the scale subresource is %v; the status has its count in nodes", scale)
		}
	}
}
