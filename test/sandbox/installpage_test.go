package sandbox

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// section returns what a page of docs/ says under a heading of the second level; with an empty one, what stands before the first.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "\n## ") {
		if i == 0 && heading == "" {
			return part
		}
		if title, rest, _ := strings.Cut(part, "\n"); i > 0 && title == heading {
			return rest
		}
	}
	t.Fatalf("%s has no heading %q", page, heading)
	return ""
}

var block = regexp.MustCompile(`(?m)^( {4,})\S.*\n(?:(?: {4,}.*)?\n)*`)

// commands returns the blocks of commands of a section, each without its indentation.
func commands(t *testing.T, page, heading string) string {
	t.Helper()
	var out strings.Builder
	for _, m := range block.FindAllStringSubmatch(section(t, page, heading), -1) {
		for _, line := range strings.Split(m[0], "\n") {
			out.WriteString(strings.TrimPrefix(line, m[1]) + "\n")
		}
	}
	if out.Len() == 0 {
		t.Fatalf("%s has no commands under %q", page, heading)
	}
	return out.String()
}

// quoted returns the commands that the text of a section quotes and that begin with these words.
func quoted(t *testing.T, page, heading, words string) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile("`("+words+" [^`]+)`").FindAllStringSubmatch(section(t, page, heading), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatalf("%s quotes no command %q under %q", page, words, heading)
	}
	return out
}

// stubs stand for the two programs of the page that can't do here what they do for a user: the AWS command line, which would need an account, and
// make, where it would compile Kubernetes for two architectures and push that. All else is run as it stands.
var stubs = map[string]string{
	"aws": `case "$*" in
"sts get-caller-identity --query Account --output text") echo %[2]s;;
"sts get-caller-identity --query Arn --output text") echo arn:aws:sts::%[2]s:assumed-role/admin/me;;
esac`,
	"make": `case "$1" in image|push) exit 0;; esac
exec %[1]s "$@"`,
}

// page is a shell in which commands of the documentation run, in a clone of the repository.
type page struct {
	t    *testing.T
	root string
	env  []string
}

// newPage builds helm and kubectl from the code that they consist of.
func newPage(t *testing.T, in *installed) *page {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	for name, main := range map[string]string{"helm": "helm.sh/helm/v4/cmd/helm", "kubectl": "./kubectl"} {
		cmd := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "tools", "chart"), "build", "-ldflags", "-s -w", "-o", filepath.Join(programs, name), main)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", name, err, out)
		}
	}
	realMake, err := exec.LookPath("make")
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range stubs {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/usr/bin/env bash\n"+fmt.Sprintf(script+"\n: %[1]s %[2]s", realMake, "123456789012")), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	home := t.TempDir()
	return &page{t: t, root: root, env: append(os.Environ(), "KUBECONFIG="+in.AdminKubeconfig(), "PATH="+programs+":"+os.Getenv("PATH"),
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)}
}

func (p *page) run(script string) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = p.root, p.env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w:\n%s\nof\n%s", err, out, script)
	}
	return nil
}

// nodeGroup stands for the nodes on which Dovetail's own pods run: it lets each of them be Ready.
func (in *installed) nodeGroup(ctx context.Context) {
	_ = wait.PollUntilContextCancel(ctx, 300*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var pods corev1.PodList
		if err := in.Client().List(ctx, &pods, own...); err != nil {
			return false, nil
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Status.Phase != corev1.PodRunning {
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
				_ = in.Client().Status().Update(ctx, pod) // or in the next round
			}
		}
		return false, nil
	})
}

// own selects Dovetail's own pods.
var own = []client.ListOption{client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"app.kubernetes.io/name": "dovetail-scheduler"}}

// Who follows the page from top to bottom gets a scheduler, pools, and nodes for the first pods. Who then follows the page on upgrades keeps them, and can
// go back.
func TestInstallPage(t *testing.T) {
	s := ForTest(t, Options{Cluster: cluster.Options{Manifests: cluster.NoManifests, ControllerManager: true}, EC2: ec2.Config{Speed: 100, Queue: "Dovetail-dovetail", Role: "DovetailNode-dovetail"},
		Idle: true, Objects: []client.Object{}})
	in := &installed{Sandbox: s, t: t, namespace: metav1.NamespaceSystem, dir: t.TempDir(), env: s.EC2.Env()}
	shell := newPage(t, in)
	script := ""
	for _, heading := range []string{"", "1. Image and charts", "2. The account", "4. Dovetail", "5. Pools", "6. Check that it works"} {
		script += commands(t, "install.md", heading)
	}
	const place = "CLUSTER=my-cluster REGION=us-west-2\n"
	if !strings.Contains(script, place) {
		t.Fatalf("the page doesn't begin with %q:\n%s", place, script)
	}
	script = strings.ReplaceAll(script, place, fmt.Sprintf("CLUSTER=%s REGION=%s\n", s.EC2.Cluster(), s.EC2.Region()))
	done := make(chan error, 1)
	go func() { done <- shell.run(script) }()

	deployment := eventually(t, done, func(ctx context.Context) ([]*appsv1.Deployment, error) {
		return cluster.Until(ctx, s.Client(), &appsv1.DeploymentList{}, func(all []*appsv1.Deployment) (bool, string, error) { return len(all) > 0, "the Deployment", nil }, own...)
	})[0]
	template := deployment.Spec.Template.Spec
	_, kubeconfig, err := s.ServiceAccountConfig(t.Context(), in.namespace, template.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	in.run(template, kubeconfig)
	group, stop := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { in.nodeGroup(group); close(left) }()
	defer func() { stop(); <-left }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	bound := in.helloRuns(3)

	for _, heading := range []string{"Before", "The order"} {
		// The page says where these variables are from.
		if err := shell.run("REPOSITORY=registry.example/dovetail-scheduler REGION=us-west-2\n" + commands(t, "upgrade.md", heading)); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range quoted(t, "upgrade.md", "Rollback", "helm") {
		if err := shell.run(command); err != nil {
			t.Fatal(err)
		}
	}
	if after := in.helloRuns(3); !maps.Equal(bound, after) {
		t.Errorf("the pods ran on %v, and after an upgrade and back on %v", bound, after)
	}

	if err := shell.run(quoted(t, "install.md", "6. Check that it works", "kubectl delete")[0]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := cluster.Until(ctx, s.Client(), &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return len(claims) == 0, fmt.Sprintf("%d NodeClaims are left", len(claims)), nil
	}); err != nil {
		t.Error(err)
	}
}

// eventually returns what a wait returns, unless the page's commands fail before.
func eventually[T any](t *testing.T, failed chan error, until func(context.Context) (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	results := make(chan result, 1)
	go func() {
		value, err := until(ctx)
		results <- result{value, err}
	}()
	select {
	case err := <-failed:
		t.Fatalf("the page's commands ended early: %v", err)
		panic("unreachable")
	case r := <-results:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.value
	}
}

// helloRuns waits until so many pods of the page's Deployment run on nodes of its pool, and returns each pod's node.
func (in *installed) helloRuns(n int) map[string]string {
	t := in.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pods, err := cluster.UntilPods(ctx, in.Client(), n, cluster.Running, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{"app": "hello"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, pod := range pods {
		var node corev1.Node
		if err := in.Client().Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node); err != nil || node.Labels[karpv1.NodePoolLabelKey] != "default" {
			t.Errorf("pod %s runs on node %s with labels %v: %v", pod.Name, pod.Spec.NodeName, node.Labels, err)
		}
		out[pod.Name] = pod.Spec.NodeName
	}
	return out
}
