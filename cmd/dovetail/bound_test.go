package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
