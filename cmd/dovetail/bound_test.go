package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the pods on nodes of pools cost at least on new nodes doesn't depend on other nodes, however empty; all pods count that their nodes would lack room for.
// With a price that isn't known there is no comparison.
func TestBoundOfTheClusterIsAboutNewNodes(t *testing.T) {
	bound, unknown := regexp.MustCompile(`at least \$(\S+)/h`), regexp.MustCompile(`(no known price: .*)\n`)
	top := func(more string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "more.yaml")
		if err := os.WriteFile(file, []byte(more), 0o600); err != nil {
			t.Fatal(err)
		}
		out := dovetail(t, "dovetail top --existing testdata/live.yaml --existing testdata/live-nodes.yaml --catalog testdata/catalog.json --existing "+file)
		m := bound.FindStringSubmatch(out)
		if m == nil {
			if m = unknown.FindStringSubmatch(out); m == nil {
				t.Errorf("it doesn't say why there is no bound:\n%s", out)
				return ""
			}
		}
		return m[1]
	}
	const none = "apiVersion: v1\nkind: Namespace\nmetadata: {name: empty}\n"
	node := func(name, instanceType, labels string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Node
metadata: {name: %s, labels: {node.kubernetes.io/instance-type: %s, topology.kubernetes.io/zone: eu-test-1a, kubernetes.io/arch: amd64, kubernetes.io/os: linux%s}}
status:
  allocatable: {cpu: "64", memory: 256Gi, pods: "110"}
  capacity: {cpu: "64", memory: 256Gi, pods: "110"}
  conditions: [{type: Ready, status: "True"}]
`, name, instanceType, labels)
	}
	pod := func(owner string) string {
		return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: lone, namespace: shop, uid: lone%s}
spec:
  nodeName: node-a
  schedulerName: dovetail-scheduler
  containers: [{name: a, resources: {requests: {cpu: "3", memory: 2Gi}}}]
status: {phase: Running}
`, owner)
	}
	before := top(none)
	if before == "" {
		t.Fatal("there is no bound")
	}
	if after := top(node("mng-1", "m1.large", "")); after != before {
		t.Errorf("with an empty node of nobody's pool the bound is $%s, without it $%s", after, before)
	}
	lone, owned := top(pod("")), top(pod(", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: rs, uid: rs, controller: true}]"))
	if lone != owned || lone == before {
		t.Errorf("with a pod more the bound is $%s, or $%s if it has no controller; without it $%s", owned, lone, before)
	}
	if got := top(node("odd", "z99.large", ", karpenter.sh/nodepool: general, karpenter.sh/capacity-type: on-demand")); got != "no known price: z99.large" {
		t.Errorf("beside a node of unknown price the bound is $%s", got)
	}
}

// Limits of pools and of all pools don't make the bound smaller: the pods run already. Pods that no pool can have nodes for are said, and nothing is compared then.
func TestBoundDoesNotDependOnLimits(t *testing.T) {
	const class = `---
{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default, uid: c}, spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: s}], securityGroupSelectorTerms: [{id: g}]},
  status: {subnets: [{id: s, zone: eu-test-1a}]}}
`
	pool := func(name, spec string) string {
		return fmt.Sprintf(`---
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: %s, uid: %[1]s}, spec: {%s template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default},
  taints: [{key: %[1]s, effect: NoSchedule}], requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}}}}
`, name, spec)
	}
	nodes := func(pool string, n int) (out string) {
		for i := range n {
			out += fmt.Sprintf(`---
{apiVersion: v1, kind: Node, metadata: {name: %[1]s-%[2]d, uid: %[1]s-%[2]d, labels: {karpenter.sh/nodepool: %[1]s, karpenter.k8s.aws/ec2nodeclass: default, karpenter.sh/capacity-type: on-demand,
  node.kubernetes.io/instance-type: m1.large, topology.kubernetes.io/zone: eu-test-1a}}, status: {allocatable: {cpu: "3900m", memory: 15Gi, pods: "58"}, capacity: {cpu: "4", memory: 16Gi, pods: "58"}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: %[1]s-%[2]d, namespace: shop, uid: pod-%[1]s-%[2]d}, spec: {nodeName: %[1]s-%[2]d, tolerations: [{key: %[1]s, operator: Exists}], containers: [{name: c, image: i, resources: {requests: {cpu: "3"}}}]}, status: {phase: Running}}
`, pool, i)
		}
		return out
	}
	top := func(flags string, objects ...string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "world.yaml")
		if err := os.WriteFile(file, []byte(class+strings.Join(objects, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		return dovetail(t, "dovetail top --catalog testdata/catalog.json --existing "+file+flags)
	}
	const four = "4 nodes of pools: $0.8000/h. Their pods cost at least $0.8000/h on new nodes, however they are packed: this is 0 % above it. "
	for name, tc := range map[string]struct {
		flags   string
		objects []string
		want    string
	}{
		"no limit":                   {"", []string{pool("a", ""), nodes("a", 4)}, four},
		"limit of the pool":          {"", []string{pool("a", "limits: {cpu: 4},"), nodes("a", 4)}, four},
		"limit of all pools":         {" --config testdata/scheduler-limits.yaml", []string{pool("a", ""), nodes("a", 4)}, four},
		"a static pool among them":   {"", []string{pool("a", ""), nodes("a", 2), pool("b", "replicas: 2,"), nodes("b", 2)}, "4 nodes of pools: $0.8000/h. Their pods cost at least $0.4000/h on new nodes, however they are packed, without 2 pods for which a plan of new nodes alone has no place (for example shop/b-0: b: it is a static pool of 2 nodes, and none are launched for pods; a: taint a:NoSchedule is not tolerated). Disruption"},
		"nothing but a static pool":  {"", []string{pool("b", "replicas: 2,"), nodes("b", 2)}, "What the pods would cost at least isn't known, because a plan of new nodes alone has no place for any of their 2 pods (for example shop/b-0: b: it is a static pool of 2 nodes, and none are launched for pods)"},
		"a pool that is gone":        {"", []string{pool("a", ""), nodes("a", 2), nodes("old", 1)}, "however they are packed, without 1 pod for which a plan of new nodes alone has no place (for example shop/old-0: a: taint a:NoSchedule is not tolerated). "},
		"nodes without pods":         {"", []string{pool("a", ""), strings.Split(nodes("a", 1), "kind: Pod")[0] + "kind: Namespace, metadata: {name: x}}\n"}, "What the pods would cost at least isn't known, because the nodes of pools have no pods but those of DaemonSets"},
		"no pool, but a node of one": {"", []string{nodes("a", 1)}, "What the pods would cost at least isn't known, because there is no node pool"},
	} {
		if out := top(tc.flags, tc.objects...); !strings.Contains(out, tc.want) {
			t.Errorf("%s:\n%s\nwant %q", name, out, tc.want)
		}
	}
}
