package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

// What a region reports becomes a file, and a plan made with it has the region's prices.
func TestCatalogOfARegionPricesAPlan(t *testing.T) {
	s, err := sim.New(sim.Config{Seed: 1, Speed: 1000, Cluster: "films"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, v := range s.Env() {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	file := filepath.Join(t.TempDir(), "catalog.json")
	if out := dovetail(t, "dovetail catalog -o "+file); !strings.HasSuffix(out, " instance types of us-west-2 to "+file+"\n") {
		t.Fatalf("catalog says:\n%s", out)
	}
	pods := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(pods, []byte(`
{apiVersion: v1, kind: Pod, metadata: {name: demand}, spec: {nodeSelector: {node.kubernetes.io/instance-type: m5.large}, containers: [{name: c, image: c, resources: {requests: {cpu: 1500m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: spot}, spec: {tolerations: [{operator: Exists}], nodeSelector: {tier: batch, node.kubernetes.io/instance-type: c5.xlarge, topology.kubernetes.io/zone: us-west-2b},
  containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var report offline.Report
	if err := json.Unmarshal([]byte(dovetail(t, "dovetail plan -f "+pods+" -f testdata/pools.yaml -o json --catalog "+file)), &report); err != nil {
		t.Fatal(err)
	}
	table := catalog.Builtin()
	demand, _ := table.Type("m5.large").OnDemand()
	spot, _ := table.Type("c5.xlarge").Spot("us-west-2b")
	got := map[string]float64{}
	for _, n := range report.Nodes {
		got[n.InstanceType+" "+n.CapacityType] = n.PricePerHour
	}
	if len(got) != 2 || got["m5.large on-demand"] != demand || got["c5.xlarge spot"] != spot {
		t.Errorf("prices %v, want %v on demand and %v on spot", got, demand, spot)
	}
	// Standard output works, too.
	if out := dovetail(t, "dovetail catalog --region us-west-2 -o -"); !bytes.Contains([]byte(out), []byte(`"name":"m5.large"`)) {
		t.Errorf("catalog -o - says:\n%.200s", out)
	}
}

func TestCatalogWithoutARegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	if out := dovetail(t, "dovetail catalog -o x"); !strings.Contains(out, "no region: give --region, or set AWS_REGION") || !strings.HasSuffix(out, "exit 2\n") {
		t.Errorf("catalog says:\n%s", out)
	}
}

// Without network or credentials the command fails at once.
func TestCatalogThatCannotBeRead(t *testing.T) {
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "none", "AWS_SHARED_CREDENTIALS_FILE": "none",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
	said := func(want string) {
		t.Helper()
		if out := dovetail(t, "dovetail catalog --region us-west-2 -o -"); !strings.Contains(out, "reading the catalogue of us-west-2: "+want) || !strings.HasSuffix(out, "exit 1\n") {
			t.Errorf("catalog says:\n%s", out)
		}
	}
	said("no AWS credentials found (environment, shared files, SSO, instance role)")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	said("AWS can't be reached: dial tcp 127.0.0.1:1")
}

// A failed write leaves nothing behind.
func TestReplace(t *testing.T) {
	folder := t.TempDir()
	if err := replace(filepath.Join(folder, "none", "file"), nil); err == nil {
		t.Error("a folder that isn't there was written to")
	}
	file := filepath.Join(folder, "file")
	for _, content := range []string{"one", "two"} {
		if err := replace(file, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != content {
			t.Errorf("%q, %v", got, err)
		}
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}
