package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/livecluster"
)

// The ClusterRole of docs/why.md allows to list everything that is read of a cluster and to get the scheduler's Lease, and nothing else.
func TestRoleOfThePageAllowsWhatIsRead(t *testing.T) {
	page, err := os.ReadFile("../../docs/why.md")
	if err != nil {
		t.Fatal(err)
	}
	var role rbacv1.ClusterRole
	for _, m := range yamlBlock.FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], "kind: ClusterRole") {
			if err := yaml.UnmarshalStrict([]byte(m[1]), &role); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, path := range append(livecluster.Paths(), "/api/v1/events", "/api/v1/configmaps") {
		parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
		group, resource := "", parts[len(parts)-1]
		if parts[0] == "apis" {
			group = parts[1]
		}
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "list")
		}) {
			t.Errorf("the role doesn't allow to list %s", path)
		}
	}
	leases := false
	for _, r := range role.Rules {
		if slices.Equal(r.APIGroups, []string{"coordination.k8s.io"}) && slices.Equal(r.Resources, []string{"leases"}) && slices.Equal(r.Verbs, []string{"get"}) {
			leases = true
			continue
		}
		if !slices.Equal(r.Verbs, []string{"list"}) {
			t.Errorf("the role allows to %s %s", strings.Join(r.Verbs, ", "), strings.Join(r.Resources, ", "))
		}
	}
	if !leases {
		t.Error("the role doesn't allow to get Leases")
	}
}
