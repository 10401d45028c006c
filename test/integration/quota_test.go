package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

const pluginsModule = "sigs.k8s.io/scheduler-plugins"

// change replaces a text in a file by another.
type change struct{ file, from, to string }

// asUpstreamWillHaveIt are the changes without which CapacityScheduling doesn't compile with this version of Kubernetes.
var asUpstreamWillHaveIt = []change{
	{"pkg/capacityscheduling/capacity_scheduling.go", "\t\tfalse, // enableAsyncPreemption\n", "\t\tpreemption.NewExecutor(c.fh, feature.Features{}),\n"},
	{"pkg/capacityscheduling/capacity_scheduling.go", "\t\"k8s.io/kubernetes/pkg/scheduler/framework/preemption\"\n",
		"\t\"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature\"\n\t\"k8s.io/kubernetes/pkg/scheduler/framework/preemption\"\n"},
}

// compiledIn are the changes that add CapacityScheduling to this program.
var compiledIn = []change{
	{"cmd/scheduler/outoftree.go", "\t\tcoscheduling.Name: coscheduling.New,\n", "\t\tcoscheduling.Name: coscheduling.New,\n\t\tcapacityscheduling.Name: capacityscheduling.New,\n"},
	{"cmd/scheduler/outoftree.go", "\t\"" + pluginsModule + "/pkg/coscheduling\"\n", "\t\"" + pluginsModule + "/pkg/capacityscheduling\"\n\t\"" + pluginsModule + "/pkg/coscheduling\"\n"},
}

// changed returns a file's text with the changes to that file; each one must apply.
func changed(t *testing.T, root, file string, changes []change) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for _, c := range changes {
		if strings.Count(text, c.from) != 1 {
			t.Fatalf("%s has %d times, instead of once:\n%s", file, strings.Count(text, c.from), c.from)
		}
		text = strings.Replace(text, c.from, c.to, 1)
	}
	return []byte(text)
}

func goCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		stderr := []byte(nil)
		if exit, ok := err.(*exec.ExitError); ok {
			stderr = exit.Stderr
		}
		t.Fatalf("go %v: %v\n%s", args, err, stderr)
	}
	return strings.TrimSpace(string(out))
}

// withQuotas builds a scheduler with CapacityScheduling, as a user with a fork of scheduler-plugins would: with a replace directive in
// go.mod and a line in outoftree.go. It returns the path of the binary and the CRD of quotas.
func withQuotas(t *testing.T) (binary, crd string) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	module := goCommand(t, root, "list", "-m", "-f", "{{.Dir}}", pluginsModule)
	fork := filepath.Join(dir, "fork")
	for _, part := range []string{"apis", "pkg"} {
		if err := os.CopyFS(filepath.Join(fork, part), os.DirFS(filepath.Join(module, part))); err != nil {
			t.Fatal(err)
		}
	}
	for file, data := range map[string][]byte{"go.mod": changed(t, module, "go.mod", nil), asUpstreamWillHaveIt[0].file: changed(t, module, asUpstreamWillHaveIt[0].file, asUpstreamWillHaveIt)} {
		path := filepath.Join(fork, filepath.FromSlash(file))
		if err := os.RemoveAll(path); err != nil { // files copied from the module cache are read-only
			t.Fatal(err)
		}
		write(filepath.Join("fork", filepath.FromSlash(file)), data)
	}
	modfile := write("go.mod", changed(t, root, "go.mod", nil))
	write("go.sum", changed(t, root, "go.sum", nil))
	goCommand(t, root, "mod", "edit", "-replace", pluginsModule+"="+fork, modfile)
	file := compiledIn[0].file
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, filepath.FromSlash(file)): write("outoftree.go", changed(t, root, file, compiledIn))}})
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "scheduler")
	goCommand(t, root, "build", "-modfile", modfile, "-overlay", write("overlay.json", overlay), "-ldflags", cluster.LinkFlags(), "-o", binary, "./cmd/scheduler")
	return binary, string(changed(t, module, "manifests/capacityscheduling/crd.yaml", nil))
}

// quotaRoles let the scheduler read quotas.
const quotaRoles = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: quotas}
rules: [{apiGroups: [scheduling.x-k8s.io], resources: [elasticquotas], verbs: [get, list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: quotas}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: quotas}
subjects: [{kind: ServiceAccount, name: dovetail-scheduler, namespace: kube-system}]
`

func quota(cpus int) string {
	return fmt.Sprintf(`{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: ElasticQuota, metadata: {name: quota, namespace: team},
  spec: {min: {cpu: "%[1]d", memory: 100Gi}, max: {cpu: "%[1]d", memory: 100Gi}}}`, cpus)
}

// Pods that scheduler-plugins' CapacityScheduling holds back because of a quota launch nothing, in one burst or one by one. After the
// quota is raised, the pods that it then admits get their nodes.
func TestQuotasOfCapacityScheduling(t *testing.T) {
	t.Parallel()
	binary, crd := withQuotas(t)
	e := start(t, func(s *setting) {
		s.idle = true
		s.config = func(cfg cluster.Config) {
			multi := cfg.Profiles()[0]["plugins"].(map[string]any)["multiPoint"].(map[string]any)
			multi["enabled"] = append(multi["enabled"].([]any), map[string]any{"name": "CapacityScheduling"})
		}
	})
	e.options.Binary = binary
	e.apply(crd, quotaRoles, nodeClass, strings.Replace(nodePool, "      requirements:\n",
		"      requirements:\n        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\"]}\n", 1))
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	e.apply(quota(4))
	e.run()
	team := func(p *corev1.Pod) { p.Namespace = "team" }
	refused := func(pod string) {
		t.Helper()
		if _, err := cluster.Until(e.wait(), e.api, &corev1.EventList{}, func(events []*corev1.Event) (bool, string, error) {
			for _, ev := range events {
				if (pod == "" || ev.InvolvedObject.Name == pod) && ev.Reason == "FailedProvisioning" && strings.Contains(ev.Message, "ElasticQuota team is more than Max") {
					return true, "", nil
				}
			}
			return false, "an event that names the quota", nil
		}, client.InNamespace("team")); err != nil {
			t.Fatal(err)
		}
	}
	// Instances that hold one pod each.
	e.pods("burst", 7, "1", "1Gi", team)
	e.someBound("burst", 4)
	refused("")
	e.pods("late", 1, "1", "1Gi", team)
	refused("late-0")
	e.pods("free", 1, "1", "1Gi") // its namespace has no quota
	e.bound("free", 1)
	e.settled(5)
	if n := e.launches(); n != 5 {
		t.Errorf("%d launches for four pods within the quota and one without", n)
	}
	e.apply(quota(6))
	if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		bound := 0
		for _, p := range pods {
			if p.Spec.NodeName != "" {
				bound++
			}
		}
		return bound == 6, fmt.Sprintf("6 pods of the team to be bound (%d are)", bound), nil
	}, client.InNamespace("team")); err != nil {
		t.Fatal(err)
	}
	e.settled(7)
	if n := e.launches(); n != 7 {
		t.Errorf("%d launches for six pods within the quota and one without", n)
	}
}
