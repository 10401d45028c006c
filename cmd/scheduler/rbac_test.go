package main

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/surge"
)

// rules returns those of the shipped ClusterRole, and those of the Role in our own namespace.
func rules(files [][]byte) (cluster, own []rbacv1.PolicyRule) {
	for _, part := range bytes.Split(bytes.Join(files, []byte("\n---\n")), []byte("\n---\n")) {
		var role rbacv1.Role
		if yaml.Unmarshal(part, &role) != nil {
			continue
		}
		switch {
		case role.Kind == "ClusterRole" && role.Name == "dovetail-scheduler":
			cluster = append(cluster, role.Rules...)
		case role.Kind == "Role" && role.Name == "dovetail-scheduler" && role.Namespace == "kube-system":
			own = append(own, role.Rules...)
		}
	}
	return cluster, own
}

func may(rules []rbacv1.PolicyRule, verb, group, resource, name string) bool {
	return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, group) && slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
	})
}

// CapacityBuffers and what they refer to may be read; of them only the status is written.
func TestCapacityBuffersMayBeRead(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, _ := rules(files)
		for kind, group := range map[string]string{"podtemplates": "", "deployments": "apps", "statefulsets": "apps", "replicasets": "apps"} {
			if !may(cluster, "get", group, kind, "") {
				t.Errorf("%s: may not read %s", folder, kind)
			}
		}
		if !may(cluster, "patch", "autoscaling.x-k8s.io", "capacitybuffers/status", "") {
			t.Errorf("%s: may not write the status of CapacityBuffers", folder)
		}
		for verb, want := range map[string]bool{"list": true, "watch": true, "patch": false, "delete": false} {
			if may(cluster, verb, "autoscaling.x-k8s.io", "capacitybuffers", "") != want {
				t.Errorf("%s: %s CapacityBuffers: %t, want %t", folder, verb, !want, want)
			}
		}
	}
}

// What a Dovetail manages is written on its lease, and read on those of others, in any namespace.
func TestLeasesMayBeReadAndMarked(t *testing.T) {
	for folder, lease := range map[string]string{"replace": "kube-scheduler", "secondary": "dovetail-scheduler"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, own := rules(files)
		for _, verb := range []string{"get", "list", "watch"} {
			if !may(cluster, verb, "coordination.k8s.io", "leases", "") {
				t.Errorf("%s: may not %s leases", folder, verb)
			}
		}
		if !may(own, "patch", "coordination.k8s.io", "leases", lease) || may(cluster, "patch", "coordination.k8s.io", "leases", "another") {
			t.Errorf("%s: must be allowed to patch its own lease, and no other", folder)
		}
	}
}

// Controllers of pods are watched, so that their pods are expected before they exist. A kind that may not be watched would keep the scheduler
// from starting: it waits until all informers have their lists.
func TestControllersOfPodsMayBeWatched(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, _ := rules(files)
		for kind, group := range map[string]string{"deployments": "apps", "replicasets": "apps", "statefulsets": "apps", "jobs": "batch"} {
			for verb, want := range map[string]bool{"get": true, "list": true, "watch": true, "patch": false, "update": false, "delete": false} {
				if may(cluster, verb, group, kind, "") != want {
					t.Errorf("%s: %s %s: %t, want %t", folder, verb, kind, !want, want)
				}
			}
		}
	}
}

// Of ProvisioningRequests only the status is written.
func TestProvisioningRequestsMayBeRead(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, _ := rules(files)
		if !may(cluster, "patch", "autoscaling.x-k8s.io", "provisioningrequests/status", "") {
			t.Errorf("%s: may not write the status of ProvisioningRequests", folder)
		}
		for verb, want := range map[string]bool{"list": true, "watch": true, "patch": false, "delete": false} {
			if may(cluster, verb, "autoscaling.x-k8s.io", "provisioningrequests", "") != want {
				t.Errorf("%s: %s ProvisioningRequests: %t, want %t", folder, verb, !want, want)
			}
		}
	}
}

// The shipped rules allow what the spending guard reads and writes: the API servers of other tests don't check authorization.
func TestSpendingGuardMayDoWhatItDoes(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, own := rules(files)
		for _, ask := range []struct{ group, resource, name string }{
			{"karpenter.sh", "nodepools", ""}, {"karpenter.sh", "provisioners", ""}, {"karpenter.k8s.aws", "ec2nodeclasses", ""},
			{"karpenter.sh", "nodeclaims", ""}, {"karpenter.sh", "nodeclaims/status", ""},
		} {
			if !may(cluster, "patch", ask.group, ask.resource, ask.name) {
				t.Errorf("%s: may not patch %s of %s", folder, ask.resource, ask.group)
			}
		}
		for _, ask := range [][2]string{{"", "limitranges"}, {"node.k8s.io", "runtimeclasses"}, {"storage.k8s.io", "csidrivers"}, {"storage.k8s.io", "storageclasses"},
			{"apps", "daemonsets"}, {"apps", "replicasets"}, {"apps", "statefulsets"}, {"batch", "jobs"}} {
			for _, verb := range []string{"list", "watch"} {
				if !may(cluster, verb, ask[0], ask[1], "") {
					t.Errorf("%s: may not %s %s", folder, verb, ask[1])
				}
			}
		}
		if !may(cluster, "create", "", "nodes", "") {
			t.Errorf("%s: may not try Nodes", folder)
		}
		for _, verb := range []string{"get", "create", "patch"} {
			if !may(own, verb, "", "configmaps", "dovetail-guard") {
				t.Errorf("%s: may not %s ConfigMap dovetail-guard", folder, verb)
			}
		}
		if may(own, "patch", "", "configmaps", "another") || may(cluster, "patch", "", "configmaps", "dovetail-guard") {
			t.Errorf("%s: may patch other ConfigMaps", folder)
		}
	}
}

// The shipped rules allow what consolidation reads and writes.
func TestConsolidationMayDoWhatItDoes(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		cluster, _ := rules(files)
		for _, ask := range [][3]string{{"list", "policy", "poddisruptionbudgets"}, {"watch", "policy", "poddisruptionbudgets"}, {"list", "", "namespaces"},
			{"watch", "", "namespaces"}, {"list", "", "pods"}, {"patch", "", "nodes"}, {"patch", "karpenter.sh", "nodeclaims"}, {"delete", "karpenter.sh", "nodeclaims"}} {
			if !may(cluster, ask[0], ask[1], ask[2], "") {
				t.Errorf("%s: may not %s %s", folder, ask[0], ask[2])
			}
		}
	}
}

// The right to patch Deployments is in a folder of its own, and its policy compares every field that a Deployment has.
func TestRightToSurge(t *testing.T) {
	for _, folder := range []string{"replace", "secondary"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if bytes.Contains(f, []byte(surge.Role)) {
				t.Errorf("folder %s speaks of the role %s", folder, surge.Role)
			}
		}
		if cluster, own := rules(files); may(cluster, "patch", "apps", "deployments", "") || may(own, "patch", "apps", "deployments", "") {
			t.Errorf("folder %s gives the right to patch Deployments", folder)
		}
	}
	files, err := manifests.Folder("surge")
	if err != nil {
		t.Fatal(err)
	}
	all := string(bytes.Join(files, nil))
	if !strings.Contains(all, "name: "+surge.Role+"\n") {
		t.Errorf("no role %s", surge.Role)
	}
	set := []string{"uid", "selfLink", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"} // by the API server
	named := []string{"name", "namespace", "generateName", "annotations"}                                                                                        // of a Deployment they can't change, or are looked at one by one
	for at, of := range map[string]any{"object.spec.": appsv1.DeploymentSpec{}, "object.metadata.": metav1.ObjectMeta{}, "object.spec.template.": corev1.PodTemplateSpec{},
		"object.spec.template.?metadata.": metav1.ObjectMeta{}} {
		for i := range reflect.TypeOf(of).NumField() {
			field, _, _ := strings.Cut(reflect.TypeOf(of).Field(i).Tag.Get("json"), ",")
			old := strings.Replace(at, "object", "oldObject", 1)
			compared := strings.Contains(all, at+"?"+field+" == "+old+"?"+field)
			apart := slices.Contains(set, field) || field == "template" || field == "metadata" || field == "annotations" && at != "object.metadata." || slices.Contains(named, field) && at == "object.metadata."
			if !compared && !apart {
				t.Errorf("the policy doesn't compare %s%s", at, field)
			}
		}
	}
}
