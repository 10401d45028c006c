package karpenter

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// TestEveryFieldOfNodeClaim tests the effects of a claim's fields on its launch and on its Node.
func TestEveryFieldOfNodeClaim(t *testing.T) {
	k := &kindOfFields{
		kind: "NodeClaim",
		base: `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: default-1, uid: uid-of-claim-1, generation: 1}
spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: []}
`,
		more: func(t *testing.T, u *unstructured.Unstructured) []string {
			if why := ClaimOf(used[*karpv1.NodeClaim](t, u, NodeClaims.New), classKind).Unreadable; why != "" {
				return strings.Split(why, "; ")
			}
			return nil
		},
		see: func(t *testing.T, u *unstructured.Unstructured, at string) string {
			nc := used[*karpv1.NodeClaim](t, u, NodeClaims.New)
			c := ClaimOf(nc, classKind)
			node := NodeFor(c, testInstance, nil)
			switch at {
			case "taints":
				return fmt.Sprintf("claim %s, node %s", asJSON(c.Taints), asJSON(node.Spec.Taints))
			case "startupTaints":
				return fmt.Sprintf("claim %s, node %s", asJSON(c.StartupTaints), asJSON(node.Spec.Taints))
			case "requirements":
				return asJSON(nc.Spec.Requirements)
			case "resources":
				return fmt.Sprint("claim asks for ", c.Requests, ", counts for ", c.Takes())
			case "nodeClassRef":
				return "claim " + c.NodeClass
			case "expireAfter":
				return asJSON(nc.Spec.ExpireAfter)
			}
			return asJSON(nc.Spec.TerminationGracePeriod)
		},
	}
	k.run(t, []fieldCase{
		{
			fields: []string{"taints[].key", "taints[].value", "taints[].effect", "taints[].timeAdded"}, at: "taints", valid: `[{key: team, value: a, effect: NoSchedule}]`,
			want: `claim [{"key":"team","value":"a","effect":"NoSchedule"}], node [{"key":"team","value":"a","effect":"NoSchedule"},{"key":"karpenter.sh/unregistered","effect":"NoSchedule"}]`,
			invalid: []wrong{
				{`[{key: "", effect: NoSchedule}]`, "spec.taints[0].key"}, {`[{effect: NoSchedule}]`, "spec.taints[0].key"}, {`[{key: a, value: "b c", effect: NoSchedule}]`, "spec.taints[0].value"},
				{`[{key: a, effect: Sometimes}]`, "spec.taints[0].effect"}, {`[{key: a}]`, "spec.taints[0].effect"}, {`[{key: a, effect: NoSchedule, timeAdded: yesterday}]`, "spec.taints[0].timeAdded"},
			},
		},
		{
			fields: []string{"startupTaints[].key", "startupTaints[].value", "startupTaints[].effect", "startupTaints[].timeAdded"}, at: "startupTaints", valid: `[{key: cni, effect: NoExecute}]`,
			want: `claim [{"key":"cni","effect":"NoExecute"}], node [{"key":"cni","effect":"NoExecute"},{"key":"karpenter.sh/unregistered","effect":"NoSchedule"}]`,
			invalid: []wrong{
				{`[{key: "", effect: NoSchedule}]`, "spec.startupTaints[0].key"}, {`[{key: a, value: "b c", effect: NoSchedule}]`, "spec.startupTaints[0].value"},
				{`[{key: a, effect: Sometimes}]`, "spec.startupTaints[0].effect"}, {`[{key: a, effect: NoSchedule, timeAdded: 3}]`, "spec.startupTaints[0].timeAdded"},
			},
		},
		{
			fields: []string{"requirements[].key", "requirements[].operator", "requirements[].values[]", "requirements[].minValues"}, at: "requirements",
			valid: `[{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, c5.large], minValues: 2}]`,
			want:  `[{"key":"node.kubernetes.io/instance-type","operator":"In","values":["m5.large","c5.large"],"minValues":2}]`,
			invalid: []wrong{
				{"null", "spec.requirements"}, {`[{key: karpenter.sh/other, operator: Exists}]`, "spec.requirements[0].key"}, {`[{key: kubernetes.io/hostname, operator: Exists}]`, "spec.requirements[0].key"},
				{`[{key: a, operator: Near}]`, "spec.requirements[0].operator"}, {`[{key: a, operator: In, values: []}]`, "spec.requirements"},
				{`[{key: a, operator: Gt, values: [x]}]`, "spec.requirements"}, {`[{key: a, operator: In, values: [x], minValues: 2}]`, "spec.requirements"}, {`[{key: a, operator: Exists, minValues: 51}]`, "spec.requirements[0].minValues"},
				{"[" + strings.Repeat("{key: a, operator: Exists}, ", 101) + "]", "spec.requirements"},
			},
		},
		{
			fields: []string{"resources.requests{}"}, at: "resources", valid: `{requests: {cpu: 1500m, memory: 1Gi, pods: 3}}`,
			want: "claim asks for map[cpu:1500 memory:1073741824 pods:3], counts for map[cpu:1500 memory:1073741824 nodes:1 pods:3]", invalid: []wrong{{"{requests: {cpu: lots}}", "spec.resources.requests"}},
		},
		{
			fields: []string{"nodeClassRef.group", "nodeClassRef.kind", "nodeClassRef.name"}, at: "nodeClassRef", valid: "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}", want: "claim gpu",
			invalid: []wrong{{"null", "spec.nodeClassRef"}, {"{group: '', kind: A, name: x}", "spec.nodeClassRef.group"}, {"{group: a/b, kind: A, name: x}", "spec.nodeClassRef.group"}, {"{group: a, kind: '', name: x}", "spec.nodeClassRef.kind"}, {"{group: a, kind: A, name: ''}", "spec.nodeClassRef.name"}},
		},
		{fields: []string{"expireAfter"}, at: "expireAfter", valid: "Never", want: `"Never"`, invalid: refusedAs("spec.expireAfter", "-1h", "2d", "9999999h")},
		{fields: []string{"terminationGracePeriod"}, at: "terminationGracePeriod", valid: "90s", want: `"1m30s"`, invalid: refusedAs("spec.terminationGracePeriod", "-1h", "Never", "9999999h")},
	})
	if got := fieldTexts(shipped.admit(k.with(t, "expireAfter", "2h"), k.with(t, "expireAfter", "1h"))); len(got) != 1 || !strings.HasPrefix(got[0], "spec:") {
		t.Errorf("a claim's spec was changed: %q", got)
	}
	if nc := used[*karpv1.NodeClaim](t, k.with(t, "taints", "[]"), NodeClaims.New); asJSON(nc.Spec.ExpireAfter) != `"720h"` {
		t.Errorf("expireAfter by default is %s", asJSON(nc.Spec.ExpireAfter))
	}
}
