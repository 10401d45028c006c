package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// largeCluster writes a cluster with so many nodes of a pool and ten pods on each, as kubectl prints it.
func largeCluster(tb testing.TB, nodes int) string {
	tb.Helper()
	var b bytes.Buffer
	b.WriteString(`{"kind":"List","apiVersion":"v1","items":[
{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":"general","uid":"np"},"spec":{"template":{"spec":{"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"},"requirements":[{"key":"karpenter.sh/capacity-type","operator":"In","values":["on-demand"]},{"key":"kubernetes.io/arch","operator":"In","values":["amd64"]}]}}}},
{"apiVersion":"karpenter.k8s.aws/v1","kind":"EC2NodeClass","metadata":{"name":"default","uid":"class"},"spec":{"role":"r","amiSelectorTerms":[{"alias":"al2023@latest"}],"subnetSelectorTerms":[{"id":"s"}],"securityGroupSelectorTerms":[{"id":"sg"}]},"status":{"subnets":[{"id":"s-0","zone":"us-west-2a"}]}}`)
	for i := range nodes {
		name := fmt.Sprintf("node-%d", i)
		fmt.Fprintf(&b, `,
{"apiVersion":"v1","kind":"Node","metadata":{"name":"%[1]s","uid":"%[1]s","creationTimestamp":"2026-11-27T08:00:00Z","labels":{"kubernetes.io/hostname":"%[1]s","kubernetes.io/arch":"amd64","kubernetes.io/os":"linux","karpenter.sh/nodepool":"general","karpenter.k8s.aws/ec2nodeclass":"default","karpenter.sh/capacity-type":"on-demand","node.kubernetes.io/instance-type":"m6i.2xlarge","topology.kubernetes.io/zone":"us-west-2a"}},"status":{"capacity":{"cpu":"8","memory":"32Gi","pods":"58"},"allocatable":{"cpu":"7910m","memory":"29Gi","pods":"58"},"conditions":[{"type":"Ready","status":"True"}]}},
{"apiVersion":"karpenter.sh/v1","kind":"NodeClaim","metadata":{"name":"claim-%[1]s","uid":"claim-%[1]s","labels":{"karpenter.sh/nodepool":"general","karpenter.sh/capacity-type":"on-demand","node.kubernetes.io/instance-type":"m6i.2xlarge","topology.kubernetes.io/zone":"us-west-2a"}},"spec":{"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"default"},"requirements":[]},"status":{"nodeName":"%[1]s","capacity":{"cpu":"8","memory":"32Gi","pods":"58"},"allocatable":{"cpu":"7910m","memory":"29Gi","pods":"58"}}}`, name)
		for j := range 10 {
			fmt.Fprintf(&b, `,
{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-%[1]d-%[2]d","namespace":"shop","uid":"p-%[1]d-%[2]d","labels":{"app":"web-%[3]d"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"w-%[3]d","controller":true}]},"spec":{"nodeName":"node-%[1]d","schedulerName":"default-scheduler","containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"500m","memory":"1Gi"}}}],"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, i, j, (i*10+j)%200)
		}
	}
	b.WriteString("]}")
	file := filepath.Join(tb.TempDir(), "large.json")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		tb.Fatal(err)
	}
	return file
}

// BenchmarkLargeCluster is a look at 2,000 nodes with 20,000 pods, without the API server's part.
func BenchmarkLargeCluster(b *testing.B) {
	file := largeCluster(b, 2000)
	for _, command := range []string{"plan", "top"} {
		b.Run(command, func(b *testing.B) {
			for b.Loop() {
				var out bytes.Buffer
				if code := run(context.Background(), []string{command, "--existing", file, "--catalog", builtinCatalog}, strings.NewReader(""), &out, &out); code != exitOK {
					b.Fatalf("exit %d:\n%s", code, &out)
				}
			}
		})
	}
}
