package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestShippedConfig(t *testing.T) {
	for folder, want := range map[string]struct{ profile, lease string }{
		"secondary": {"dovetail-scheduler", "dovetail-scheduler"},
		"replace":   {"default-scheduler", "kube-scheduler"},
	} {
		t.Run(folder, func(t *testing.T) {
			config, err := shippedConfig(folder)
			if err != nil {
				t.Fatal(err)
			}
			if got := config.section("leaderElection")["resourceName"]; got != want.lease {
				t.Errorf("the lease is %v, want %s", got, want.lease)
			}
			if n := len(config.Profiles()); n != 1 {
				t.Fatalf("%d profiles, want 1", n)
			}
			if got := config.Profiles()[0]["schedulerName"]; got != want.profile {
				t.Errorf("the profile is %v, want %s", got, want.profile)
			}
			client := config.section("clientConnection")
			if client["qps"] != 500. || client["burst"] != 1000. {
				t.Errorf("client limits are %v, want 500 and 1000", client)
			}
		})
	}
}

func TestConfigChanges(t *testing.T) {
	config := Config{}
	const before = `
profiles:
- schedulerName: ours
  pluginConfig:
  - name: Provision
    args: {clusterName: CHANGE-ME, region: CHANGE-ME}
  - name: NodeResourcesFit
    args: {clusterName: untouched}
`
	if err := yaml.Unmarshal([]byte(before), &config); err != nil {
		t.Fatal(err)
	}
	config.SetProvisionArgs(map[string]any{"clusterName": "blue", "region": nil})
	config.AddProfile("vanilla")
	config.SetKubeconfig("/k")
	config.ShortLeases()
	got, err := config.YAML()
	if err != nil {
		t.Fatal(err)
	}
	const want = `clientConnection:
  kubeconfig: /k
leaderElection:
  leaseDuration: 6s
  renewDeadline: 5s
  retryPeriod: 500ms
profiles:
- pluginConfig:
  - args:
      clusterName: blue
    name: Provision
  - args:
      clusterName: untouched
    name: NodeResourcesFit
  schedulerName: ours
- schedulerName: vanilla
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("configuration (-want +got):\n%s", diff)
	}
}
