package offline

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
)

// spreading is the default profile with a default constraint that spreads over zones.
func spreading(t *testing.T) []schedulerapi.KubeSchedulerProfile {
	t.Helper()
	cfg, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	for i := range cfg.Profiles[0].PluginConfig {
		if args, ok := cfg.Profiles[0].PluginConfig[i].Args.(*schedulerapi.PodTopologySpreadArgs); ok {
			args.DefaultingType = schedulerapi.ListDefaulting
			args.DefaultConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule}}
		}
	}
	return cfg.Profiles
}

// A profile's default constraints apply to pods that a workload or a Service selects, and to no others.
func TestDefaultSpreadConstraintsOfTheProfile(t *testing.T) {
	const single = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %s}}
spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}
---
`
	three := func(app string) string {
		out := ""
		for _, n := range []string{"1", "2", "3"} {
			out += fmt.Sprintf(single, app+n, app)
		}
		return out
	}
	const service = "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}\n---\n"
	for _, tc := range []struct {
		name, text string
		profiles   []schedulerapi.KubeSchedulerProfile
		// zones is the number of zones that each node may be in.
		zones []int
	}{
		{"the default profile", deployment("web", 4, "cpu: 3", ""), nil, []int{2, 2, 2, 2}},
		{"a Deployment's pods", deployment("web", 4, "cpu: 3", ""), spreading(t), []int{1, 1, 1, 1}},
		{"a Service's pods", service + three("web"), spreading(t), []int{1, 1, 1}},
		{"pods that nothing selects", service + three("other"), spreading(t), []int{2, 2, 2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := settings(t)
			s.Profiles = tc.profiles
			r, err := Plan(t.Context(), set(t, class+pool("general", "")+tc.text), s)
			if err != nil {
				t.Fatal(err)
			}
			var got []int
			count := map[string]int{}
			for _, n := range r.Nodes {
				got = append(got, len(n.Zones))
				if len(n.Zones) == 1 {
					count[n.Zones[0]]++
				}
			}
			if diff := cmp.Diff(tc.zones, got); diff != "" || len(r.Refused) > 0 {
				t.Errorf("zones that nodes may be in (-want +got):\n%s\nrefused: %v", diff, r.Refused)
			}
			if a, b := count["eu-test-1a"], count["eu-test-1b"]; a-b > 1 || b-a > 1 {
				t.Errorf("%d nodes in one zone, %d in the other", a, b)
			}
		})
	}
}

// Without Coscheduling in a profile, PodGroups have no effect in the scheduler and none in a plan; a warning says so.
func TestGroupsWithoutCoscheduling(t *testing.T) {
	s := settings(t)
	s.Coscheduling = false
	r, err := Plan(t.Context(), set(t, class+pool("general", "  limits: {cpu: 8}")+gang(3, 3)), s)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Nodes) != 2 || len(r.Refused) != 1 {
		t.Errorf("%d nodes, refused %v: want two pods placed without the third", len(r.Nodes), r.Refused)
	}
	const want = "pods of the groups shop/train are planned one by one, as the scheduler places them: no profile has Coscheduling (--config names the scheduler's profiles; how to enable it: docs/configuration.md)"
	if !slices.Contains(r.Warnings, want) {
		t.Errorf("warnings %q, want %q among them", r.Warnings, want)
	}
}
