package sandbox

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// chart runs tools/chart, which is a module of its own: helm renders and packages the charts there.
func chart(t *testing.T, args ...string) string {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"-C", filepath.Join(root, "tools", "chart"), "run", "."}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chart %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// installed is a cluster in which nothing but the charts has been installed.
type installed struct {
	*Sandbox
	t         *testing.T
	namespace string
	documents []string // of the chart dovetail
	dir       string
	env       []string // of the scheduler, beside that of its container
}

// installCharts installs both charts, with the values that this cluster and the simulated account need, and with pools.
func installCharts(t *testing.T, namespace string, values map[string]any) *installed {
	t.Helper()
	s := ForTest(t, Options{Cluster: cluster.Options{Manifests: cluster.NoManifests}, EC2: ec2.Config{Speed: 100}, Idle: true, Objects: []client.Object{}})
	in := &installed{Sandbox: s, t: t, namespace: namespace, dir: t.TempDir()}
	packages := strings.Fields(chart(t, "package", "--out", in.dir))
	if len(packages) != 2 {
		t.Fatalf("packages: %q", packages)
	}
	in.apply(chart(t, "template", packages[1]))
	if err := s.WaitServed(t.Context()); err != nil {
		t.Fatal(err)
	}
	var env []map[string]string
	for _, e := range s.EC2.Env() {
		name, value, _ := strings.Cut(e, "=")
		env = append(env, map[string]string{"name": name, "value": value})
	}
	all := map[string]any{
		"image":           map[string]string{"repository": "registry.example/dovetail-scheduler"},
		"settings":        clusterSettings(s),
		"controller":      map[string]any{"env": env},
		"surge":           map[string]any{"enabled": true},
		"namespacePolicy": map[string]any{"enabled": true},
		"networkPolicy":   map[string]any{"enabled": true},
	}
	for name, value := range values {
		all[name] = value
	}
	data, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(in.dir, "values.yaml")
	if err := os.WriteFile(file, append(data, pools...), 0o644); err != nil {
		t.Fatal(err)
	}
	if namespace != metav1.NamespaceSystem {
		if err := s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			t.Fatal(err)
		}
	}
	text := chart(t, "template", "-f", file, "--namespace", namespace, packages[0])
	in.apply(text)
	in.documents = strings.Split(text, "\n---\n")
	return in
}

// pools are values of the chart: a pool and a class that the simulator supports.
const pools = `
nodePools:
  - name: default
    spec:
      template:
        spec:
          nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
          requirements:
            - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
            - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
ec2NodeClasses:
  - name: default
    spec:
      role: DovetailNode
      amiSelectorTerms: [{alias: al2023@latest}]
      subnetSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
      securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]
`

// clusterSettings are what EKS would tell Dovetail about a cluster, and names.
func clusterSettings(s *Sandbox) map[string]any {
	admin := s.AdminConfig()
	return map[string]any{"clusterName": s.EC2.Cluster(), "region": s.EC2.Region(), "clusterEndpoint": admin.Host,
		"clusterCABundle": base64.StdEncoding.EncodeToString(admin.CAData), "clusterCIDR": "10.96.0.0/16"}
}

func (in *installed) apply(documents string) {
	in.t.Helper()
	if err := in.Apply(in.t.Context(), []byte(documents)); err != nil {
		in.t.Fatal(err)
	}
}

// run starts dovetail-scheduler as a kubelet would start the container of the pod: with its arguments and environment and nothing else, and with
// its volumes, for whose paths folders of the test stand. What a process beside others needs is added: a port of its own, on loopback, and a
// kubeconfig of the pod's account in place of the token that a kubelet mounts.
func (in *installed) run(pod corev1.PodSpec, kubeconfig string) (url string) {
	t := in.t
	t.Helper()
	binary, err := cluster.Build(t.Context(), cluster.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	container := pod.Containers[0]
	if len(container.Command) > 0 {
		t.Fatalf("the image's entry point is replaced by %q", container.Command)
	}
	paths := map[string]string{}
	for _, mount := range container.VolumeMounts {
		paths[mount.MountPath] = in.volume(pod, mount.Name, kubeconfig)
	}
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{}
	for _, arg := range container.Args {
		args = append(args, translate(arg, paths))
	}
	args = append(args, "--cert-dir="+filepath.Join(in.dir, "certs"), "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	env := slices.Clone(in.env)
	for _, e := range container.Env {
		env = append(env, e.Name+"="+e.Value)
	}
	log := filepath.Join(in.dir, "scheduler.log")
	process, err := cluster.StartProcess("dovetail-scheduler", binary, log, args, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Stop(10 * time.Second)
		if t.Failed() {
			t.Logf("end of the scheduler's log:\n%s", cluster.Tail(log, 20000))
		}
	})
	url = fmt.Sprintf("https://127.0.0.1:%d", port)
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		in.answers(process, url+probe.HTTPGet.Path)
	}
	return url
}

// volume returns the folder or file that stands for a volume. A ConfigMap's is what the API server has.
func (in *installed) volume(pod corev1.PodSpec, name, kubeconfig string) string {
	t := in.t
	for _, v := range pod.Volumes {
		if v.Name != name {
			continue
		}
		switch {
		case v.ConfigMap != nil:
			return in.configuration(v.ConfigMap.Name, kubeconfig)
		case v.HostPath != nil && v.HostPath.Path == "/etc/kubernetes/scheduler.conf":
			return kubeconfig
		case v.HostPath != nil && v.HostPath.Path == "/etc/kubernetes/dovetail":
			return in.configuration("dovetail-scheduler", kubeconfig) // whoever installs it puts the file there
		case v.EmptyDir != nil:
			return filepath.Join(in.dir, name)
		}
	}
	t.Fatalf("there is no volume %s that a test can mount", name)
	return ""
}

// configuration writes the configuration of the ConfigMap into a folder. A lease that lasts longer isn't lost on a slow machine.
func (in *installed) configuration(name, kubeconfig string) string {
	t := in.t
	var stored corev1.ConfigMap
	if err := in.Client().Get(t.Context(), client.ObjectKey{Namespace: in.namespace, Name: name}, &stored); err != nil {
		t.Fatal(err)
	}
	config := cluster.Config{}
	if err := yaml.Unmarshal([]byte(stored.Data[manifests.ConfigKey]), &config); err != nil {
		t.Fatal(err)
	}
	config.SetKubeconfig(kubeconfig)
	config.LongLeases()
	data, err := config.YAML()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(in.dir, "config")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, manifests.ConfigKey), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return folder
}

// translate replaces the path in an argument if it is in a mounted volume.
func translate(arg string, paths map[string]string) string {
	flag, path, ok := strings.Cut(arg, "=")
	for mounted, folder := range paths {
		if rest, in := strings.CutPrefix(path, mounted); ok && in && (rest == "" || rest[0] == '/') {
			return flag + "=" + folder + rest
		}
	}
	return arg
}

// answers waits until a path answers ok, which a kubelet's probe may ask without a token.
func (in *installed) answers(process *cluster.Process, url string) {
	in.t.Helper()
	ctx, cancel := context.WithTimeout(in.t.Context(), 2*time.Minute)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
		select {
		case <-process.Exited():
			return false, fmt.Errorf("the scheduler has ended: %w", process.Err())
		default:
			return in.status(url, "") == http.StatusOK, nil
		}
	})
	if err != nil {
		in.t.Fatalf("%s doesn't answer: %v", url, err)
	}
}

// status asks for a URL with a token, and returns the code of the answer, or 0 if there is none.
func (in *installed) status(url, token string) int {
	ask, err := http.NewRequestWithContext(in.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		in.t.Fatal(err)
	}
	if token != "" {
		ask.Header.Set("Authorization", "Bearer "+token)
	}
	browser := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}} // its certificate is self-signed
	answer, err := browser.Do(ask)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

// smoke creates pods for a scheduler by that name, and waits until they are bound to nodes that were launched for them.
func (in *installed) smoke(schedulerName, lease string) {
	t := in.t
	t.Helper()
	pods := Pods("web", 3, "500m", "1Gi", func(_ int, p *corev1.Pod) { p.Spec.SchedulerName = schedulerName })
	if err := in.Create(t.Context(), pods...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	bound, err := cluster.UntilPods(ctx, in.Client(), 3, cluster.Bound, client.InNamespace(metav1.NamespaceDefault))
	if err != nil {
		t.Fatal(err)
	}
	var node corev1.Node
	if err := in.Client().Get(t.Context(), client.ObjectKey{Name: bound[0].Spec.NodeName}, &node); err != nil || node.Labels["karpenter.sh/nodepool"] != "default" {
		t.Errorf("bound to node %s with labels %v: %v", bound[0].Spec.NodeName, node.Labels, err)
	}
	if err := in.Client().Get(t.Context(), client.ObjectKey{Namespace: in.namespace, Name: lease}, &coordinationv1.Lease{}); err != nil {
		t.Errorf("its lease: %v", err)
	}
}

// planLogged looks for the line of a plan in a log of JSON, with what docs/ecosystem.md says that it has.
func (in *installed) planLogged() {
	in.t.Helper()
	log, err := os.ReadFile(filepath.Join(in.dir, "scheduler.log"))
	if err != nil {
		in.t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "Planned" {
			continue
		}
		for _, key := range []string{"ts", "pods", "placed", "newNodes", "dollarsPerHour", "lowerBound"} {
			if _, ok := entry[key]; !ok {
				in.t.Errorf("the log's line of a plan has no %s: %s", key, line)
			}
		}
		return
	}
	in.t.Error("no line of the log is JSON and tells of a plan")
}

// As the charts install it beside the cluster's scheduler, in a namespace of its own, Dovetail launches nodes, and Prometheus may read its metrics.
func TestChartBesideTheScheduler(t *testing.T) {
	in := installCharts(t, "dovetail", map[string]any{"logFormat": "json"})
	var deployment appsv1.Deployment
	for _, document := range in.documents {
		if strings.Contains(document, "\nkind: Deployment\n") {
			if err := yaml.UnmarshalStrict([]byte(document), &deployment); err != nil {
				t.Fatal(err)
			}
		}
	}
	pod := deployment.Spec.Template.Spec
	_, kubeconfig, err := in.ServiceAccountConfig(t.Context(), in.namespace, pod.ServiceAccountName)
	if err != nil {
		t.Fatal(err)
	}
	url := in.run(pod, kubeconfig)
	in.smoke(SchedulerName, "dovetail-scheduler")
	in.planLogged()

	if err := in.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: in.namespace, Name: "prometheus"}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "metrics"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "metrics"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: in.namespace, Name: "prometheus"}}}); err != nil {
		t.Fatal(err)
	}
	prometheus, _, err := in.ServiceAccountConfig(t.Context(), in.namespace, "prometheus")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The API server takes a moment to know a new binding.
	if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return in.status(url+"/metrics", prometheus.BearerToken) == http.StatusOK, nil
	}); err != nil {
		t.Errorf("metrics with the token of a ServiceAccount that may read them: %v", err)
	}
	in.guarded(url, prometheus.BearerToken)
}

// guarded checks that the scheduler's server answers probes to everybody, and anything else only to those who may ask for it: the token's owner may read
// /metrics, and nothing else.
func (in *installed) guarded(url, token string) {
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		if status := in.status(url+path, ""); status != http.StatusOK {
			in.t.Errorf("%s without a token: %d", path, status)
		}
	}
	for _, path := range []string{"/metrics", "/metrics/resources", "/configz", "/debug/pprof/", "/debug/pprof/heap", "/debug/flags/v", "/flagz", "/statusz", "/"} {
		for who, bearer := range map[string]string{"nobody": "", "an impostor": "no-token"} {
			if status := in.status(url+path, bearer); status != http.StatusForbidden && status != http.StatusUnauthorized {
				in.t.Errorf("%s for %s: %d", path, who, status)
			}
		}
		if status := in.status(url+path, token); path != "/metrics" && status != http.StatusForbidden {
			in.t.Errorf("%s for Prometheus, which may read metrics only: %d", path, status)
		}
	}
}

// As the chart installs it in place of the cluster's scheduler, the static pod of the ConfigMap launches nodes as the user system:kube-scheduler.
func TestChartInPlaceOfTheScheduler(t *testing.T) {
	in := installCharts(t, metav1.NamespaceSystem, map[string]any{"mode": "replace"})
	var stored corev1.ConfigMap
	if err := in.Client().Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "dovetail-scheduler"}, &stored); err != nil {
		t.Fatal(err)
	}
	var static corev1.Pod
	if err := yaml.UnmarshalStrict([]byte(stored.Data["kube-scheduler.yaml"]), &static); err != nil {
		t.Fatal(err)
	}
	in.run(static.Spec, in.SchedulerKubeconfig())
	in.smoke(corev1.DefaultSchedulerName, "kube-scheduler")
}
