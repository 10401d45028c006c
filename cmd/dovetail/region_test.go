package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// elsewhere writes a cluster in eu-central-1 with a pod that fits on none of its nodes.
func elsewhere(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(`
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: default, uid: np}, spec: {template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default},
  requirements: [{key: topology.kubernetes.io/zone, operator: In, values: [eu-central-1a, eu-central-1b]}, {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]}}}}
---
{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default, uid: class}, spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: s}], securityGroupSelectorTerms: [{id: sg}]},
  status: {subnets: [{id: s-1, zone: eu-central-1a}, {id: s-2, zone: eu-central-1b}], conditions: [{type: Ready, status: "True", reason: Ready, lastTransitionTime: "2026-11-27T08:00:00Z", message: ""}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: full, uid: full, labels: {topology.kubernetes.io/zone: eu-central-1a, topology.kubernetes.io/region: eu-central-1, node.kubernetes.io/instance-type: m6i.large}},
  status: {allocatable: {cpu: "0", memory: 1Gi, pods: "1"}, conditions: [{type: Ready, status: "True"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, uid: web}, spec: {nodeSelector: {topology.kubernetes.io/zone: eu-central-1b, kubernetes.io/arch: amd64}, containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// planOf runs a plan whose output is JSON.
func planOf(t *testing.T, line string) *offline.Report {
	t.Helper()
	out := dovetail(t, line+" -o json")
	from := strings.Index(out, "{\n")
	if from < 0 {
		t.Fatalf("%s says:\n%s", line, out)
	}
	r := &offline.Report{}
	if err := json.NewDecoder(strings.NewReader(out[from:])).Decode(r); err != nil {
		t.Fatalf("%s says %v:\n%s", line, err, out)
	}
	return r
}

// The built-in catalogue has the cluster's region and zones, or those of --zones.
func TestBuiltinCatalogInAnotherRegion(t *testing.T) {
	r := planOf(t, "dovetail plan --existing "+elsewhere(t)+" --catalog builtin")
	if len(r.Refused) > 0 || len(r.Nodes) != 1 || r.Nodes[0].Zone != "eu-central-1b" {
		t.Errorf("nodes %v, refused %v", r.Nodes, r.Refused)
	}
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	r = planOf(t, "dovetail plan -f "+pod+" --default-pool --catalog builtin --zones eu-central-1a")
	if len(r.Refused) > 0 || len(r.Nodes) == 0 || strings.Join(r.Nodes[0].Zones, " ") != "eu-central-1a" {
		t.Errorf("with --zones: nodes %v, refused %v", r.Nodes, r.Refused)
	}
}

// A catalogue of another region than the nodes' is named, because nothing can be bought by it.
func TestCatalogOfAnotherRegion(t *testing.T) {
	const want = "--catalog testdata/catalog.json: the catalogue is of eu-test-1, the nodes are in eu-central-1: "
	for _, command := range []string{"plan", "top --no-bound"} {
		if out := dovetail(t, "dovetail "+command+" --existing "+elsewhere(t)+" --catalog testdata/catalog.json"); !strings.Contains(out, "Warning: "+want) {
			t.Errorf("%s says nothing of it:\n%s", command, out)
		}
	}
	if out := dovetail(t, "dovetail plan --existing testdata/live.yaml --catalog testdata/catalog.json"); strings.Contains(out, "the catalogue is of") {
		t.Errorf("of its own region it says:\n%s", out)
	}
}

func TestRegionOfZones(t *testing.T) {
	for zone, want := range map[string]string{"eu-central-1a": "eu-central-1", "us-gov-west-1b": "us-gov-west-1", "us-west-2-lax-1a": "us-west-2", "eu-test-1a": "eu-test-1", "rack7": "", "": ""} {
		if got := regionOf([]string{zone}); got != want {
			t.Errorf("%q is in region %q, want %q", zone, got, want)
		}
	}
	if got := regionOf(nil); got != "" {
		t.Errorf("no zones are in region %q", got)
	}
}
