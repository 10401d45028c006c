package offline

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A full node of the pool, which uses the commitment already.
const fullNode = `
apiVersion: v1
kind: Node
metadata:
  name: old
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {kubernetes.io/hostname: old, karpenter.sh/nodepool: general, karpenter.k8s.aws/ec2nodeclass: default, node.kubernetes.io/instance-type: m1.large,
    topology.kubernetes.io/zone: eu-test-1a, karpenter.sh/capacity-type: on-demand}
status: {allocatable: {cpu: 100m, memory: 1Gi, pods: 5}, capacity: {cpu: 2, memory: 8Gi, pods: 5}}
---
`

func TestCommitments(t *testing.T) {
	text := class + pool("general", "") + fullNode + deployment("web", 3, "cpu: 1500m", "")
	without, err := Plan(t.Context(), set(t, text), settings(t))
	if err != nil {
		t.Fatal(err)
	}
	list := without.Nodes[0].PricePerHour
	s := settings(t)
	s.Plan.Commitments = []capacity.Commitment{{Name: "compute-sp", MicroDollars: capacity.MicroDollarsOf(2.5 * list), RateFactor: 1}}
	r, err := Plan(t.Context(), set(t, text), s)
	if err != nil {
		t.Fatal(err)
	}
	if r.TotalPerHour != without.TotalPerHour || len(r.Nodes) != 2 {
		t.Errorf("at list price %v, without commitments %v, for %d nodes", r.TotalPerHour, without.TotalPerHour, len(r.Nodes))
	}
	if diff := cmp.Diff([]Commitment{{"compute-sp", 2.5 * list, list, list}}, r.Commitments); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := *r.BeyondCommitmentsPerHour; got != list {
		t.Errorf("beyond commitments %v, want %v", got, list)
	}
	var table strings.Builder
	if err := r.Table(&table, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"on-demand (compute-sp)", "\nCommitment compute-sp: $", "/h used before, $", "/h by this plan\nBeyond commitments the plan costs $"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("%q is not in\n%s", want, table.String())
		}
	}
	table.Reset()
	if err := without.Table(&table, false); err != nil || strings.Contains(table.String(), "ommitment") {
		t.Errorf("without commitments the report mentions them: %v\n%s", err, table.String())
	}
	if got := Coverage(set(t, text), s).Of("old"); got != "compute-sp" {
		t.Errorf("the node is covered by %q", got)
	}
	if Coverage(set(t, text), settings(t)) != nil {
		t.Error("without commitments something is covered")
	}
}
