package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// teamPool returns a NodePool whose nodes hold one of the test's pods each.
func teamPool(name, team string) string {
	out := strings.Replace(nodePool, "{name: default}", fmt.Sprintf("{name: %s, labels: {team: %s}}", name, team), 1)
	return strings.Replace(out, "      requirements:\n", "      requirements:\n        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"4\"]}\n", 1)
}

// twoProfiles replaces the profile by profiles a and b, each for the pools of its team.
func twoProfiles(cfg cluster.Config) {
	first := cfg.Profiles()[0]
	var all []any
	for _, team := range []string{"a", "b"} {
		one := map[string]any{}
		raw, err := yaml.Marshal(first)
		if err == nil {
			err = yaml.Unmarshal(raw, &one)
		}
		if err != nil {
			panic(err) // it was read from YAML, so it can be written as YAML
		}
		one["schedulerName"] = team
		argsOfProfile(one)["nodePoolSelector"] = map[string]any{"matchLabels": map[string]any{"team": team}}
		all = append(all, one)
	}
	cfg["profiles"] = all
}

func argsOfProfile(profile map[string]any) map[string]any {
	for _, p := range profile["pluginConfig"].([]any) {
		if plugin := p.(map[string]any); plugin["name"] == "Provision" {
			return plugin["args"].(map[string]any)
		}
	}
	return nil
}

// perPool returns the number of NodeClaims of each pool.
func (e *env) perPool() map[string]int {
	e.Helper()
	out := map[string]int{}
	for _, c := range e.claims() {
		out[c.Labels[karpv1.NodePoolLabelKey]]++
	}
	return out
}

// onPools checks that the application's pods run on nodes of these pools.
func (e *env) onPools(app string, n int, pools ...string) {
	e.Helper()
	for _, node := range e.landed(app, n) {
		if !slices.Contains(pools, node.Labels[karpv1.NodePoolLabelKey]) {
			e.Errorf("pods of %s are on a node of pool %s, want one of %v", app, node.Labels[karpv1.NodePoolLabelKey], pools)
		}
	}
}

// Two profiles in one scheduler: nodes for the pods of each are launched in that profile's own pools. One of them has a pool in its
// arguments; after this is removed, no more nodes are launched in that pool, and pods that run there are not disturbed.
func TestTwoProfiles(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.mortal = true
		s.config = func(cfg cluster.Config) {
			twoProfiles(cfg)
			object := map[string]any{}
			if err := yaml.Unmarshal([]byte(teamPool("extra", "a")), &object); err != nil {
				t.Fatal(err)
			}
			spec := object["spec"].(map[string]any)
			spec["weight"], spec["limits"] = 100, map[string]any{"nodes": 1}
			argsOfProfile(cfg.Profiles()[0])["nodePools"] = []any{map[string]any{"name": "extra", "spec": spec}}
		}
	})
	// The pool named nobody, of a team without a profile, has the highest weight.
	e.apply(nodeClass, teamPool("team-a", "a"), teamPool("team-b", "b"), strings.Replace(teamPool("nobody", "c"), "\nspec:\n", "\nspec:\n  weight: 50\n", 1))
	e.pods("a", 4, "3", "1Gi", scheduler("a"))
	e.pods("b", 3, "3", "1Gi", scheduler("b"))
	e.onPools("a", 4, "team-a", "args_extra")
	e.onPools("b", 3, "team-b")
	e.settled(7)
	if got, want := e.perPool(), map[string]int{"args_extra": 1, "team-a": 3, "team-b": 3}; !maps.Equal(got, want) {
		t.Errorf("claims by pool: %v, want %v", got, want)
	}

	e.sched.Kill()
	delete(argsOfProfile(e.options.Config.Profiles()[0]), "nodePools")
	e.run()
	e.pods("more", 1, "3", "1Gi", scheduler("a"))
	e.onPools("more", 1, "team-a")
	extra := e.claimsOf("args_extra")
	if len(extra) != 1 || extra[0].DeletionTimestamp != nil {
		t.Fatalf("claims of the pool that was taken out: %+v, want the one that has a pod", extra)
	}
	i := slices.IndexFunc(e.podsOf("a"), func(p corev1.Pod) bool { return p.Spec.NodeName == extra[0].Status.NodeName })
	if i < 0 {
		t.Fatal("no pod is on the node of the pool that was taken out")
	}
	last := e.podsOf("a")[i]
	if last.DeletionTimestamp != nil {
		t.Error("the pod on it was disturbed")
	}
	if err := e.api.Delete(e.ctx, &last, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	e.gone(extra[0])
	e.settled(7)
}
