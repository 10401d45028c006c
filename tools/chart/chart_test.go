package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	yamlstream "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var root = filepath.Join("..", "..")

// needed are the values without which the chart can't be rendered.
func needed() map[string]any {
	values, err := readValues(nil, []string{"settings.clusterName=blue,image.repository=registry.example/dovetail-scheduler"})
	if err != nil {
		panic(err)
	}
	return values
}

// render renders charts/dovetail with the needed values and those of sets.
func render(t *testing.T, r release, sets ...string) (files, error) {
	t.Helper()
	values, err := readValues(nil, append([]string{"settings.clusterName=blue,image.repository=registry.example/dovetail-scheduler"}, sets...))
	if err != nil {
		t.Fatal(err)
	}
	if r.kubeVersion == "" {
		r.kubeVersion = kubeVersion
	}
	if r.namespace == "" {
		r.namespace = "kube-system"
	}
	r.name = "dovetail"
	return r.render(filepath.Join(root, "charts", "dovetail"), values)
}

func mustRender(t *testing.T, r release, sets ...string) files {
	t.Helper()
	rendered, err := render(t, r, sets...)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

// object is what a test looks at in an object of the API.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
		Annotations     map[string]string
	} `json:"metadata"`
	raw []byte
}

func objects(t *testing.T, documents string) map[string]object {
	t.Helper()
	all := map[string]object{}
	decoder := yamlstream.NewYAMLReader(bufio.NewReader(strings.NewReader(documents)))
	for {
		data, err := decoder.Read()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := yaml.Unmarshal(data, &o); err != nil {
			t.Fatalf("%v in\n%s", err, data)
		}
		if o.raw = data; o.Kind == "" {
			continue
		}
		name := strings.Trim(o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
		if _, twice := all[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		all[name] = o
	}
}

func TestPlainManifestsAreRendered(t *testing.T) {
	if err := runManifests(root, []string{"--check"}, io.Discard); err != nil {
		t.Error(err)
	}
	// The check notices a difference.
	copied := t.TempDir()
	for _, folder := range []string{"charts", "manifests"} {
		if err := os.CopyFS(filepath.Join(copied, folder), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	changed := filepath.Join(copied, "manifests", "secondary", "30-deployment.yaml")
	if err := os.WriteFile(changed, []byte("replicas: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := runManifests(copied, []string{"--check"}, io.Discard); err == nil || !strings.HasSuffix(err.Error(), ": manifests/secondary/30-deployment.yaml") {
		t.Errorf("a changed manifest: %v", err)
	}
	if err := runManifests(copied, nil, io.Discard); err != nil {
		t.Error(err)
	}
	if err := runManifests(copied, []string{"--check"}, io.Discard); err != nil {
		t.Errorf("after they were rendered: %v", err)
	}
}

// A user's values of Karpenter's chart install Dovetail, and not the image of Karpenter's controller.
func TestValuesOfKarpentersChart(t *testing.T) {
	module, err := moduleFolder(root, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	values, err := readValues([]string{filepath.Join(module, "charts", "karpenter", "values.yaml")}, []string{"settings.clusterName=blue,image.repository=registry.example/dovetail-scheduler"})
	if err != nil {
		t.Fatal(err)
	}
	r := release{name: "karpenter", namespace: "kube-system", kubeVersion: kubeVersion}
	rendered, err := r.render(filepath.Join(root, "charts", "dovetail"), values)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered.documents())
	for _, name := range []string{"Deployment kube-system/dovetail-scheduler", "PodDisruptionBudget kube-system/dovetail-scheduler", "ServiceAccount kube-system/dovetail-scheduler"} {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	if text := rendered.documents(); !strings.Contains(text, "image: registry.example/dovetail-scheduler:0.2.0\n") || strings.Contains(text, "karpenter/controller") {
		t.Errorf("the image is another one in\n%s", rendered["deployment.yaml"])
	}
	if config := rendered["config.yaml"]; !strings.Contains(config, "reservedENIs: 0\n") || !strings.Contains(config, "preferencePolicy: Respect\n") || strings.Contains(config, "featureGates") || strings.Contains(config, "ignoreDRARequests") {
		t.Errorf("settings are others in\n%s", config)
	}
	notes := rendered.notes()
	for _, name := range []string{"controller.image", "controller.metrics", "controller.healthProbe", "logOutputPaths", "settings.isolatedVPC", "settings.eksControlPlane",
		"settings.amiRefreshInterval", "settings.featureGates", "settings.featureGates.nodeRepair: false", "podDisruptionBudget.name: karpenter", "settings.interruptionQueue is empty", "settings.batchIdleDuration and"} {
		if !strings.Contains(notes, name) {
			t.Errorf("no warning about %s in\n%s", name, notes)
		}
	}
	// Without them there is one warning, and with a queue none.
	if notes := mustRender(t, release{}).notes(); strings.Count(notes, "\n- ") != 1 || !strings.Contains(notes, "- settings.interruptionQueue is empty") {
		t.Errorf("notes with two values:\n%s", notes)
	}
	if notes := mustRender(t, release{}, "settings.interruptionQueue=Dovetail-blue").notes(); strings.Contains(notes, "WARNINGS") {
		t.Errorf("notes with a queue:\n%s", notes)
	}
	// What asks for something that Dovetail doesn't do is told apart from what is there by default.
	for set, want := range map[string]string{
		"settings.isolatedVPC=true":                                    "settings.isolatedVPC: Dovetail asks for prices",
		"settings.ignoreDRARequests=false":                             "settings.ignoreDRARequests: false has no effect",
		"settings.interruptionQueue=karpenter":                         "settings.interruptionQueue is karpenter. If that is Karpenter's",
		"settings.featureGates.capacityBuffer=false":                   "settings.featureGates.capacityBuffer: false has no effect",
		"serviceAccount.name=karpenter":                                "serviceAccount.name is karpenter: ",
		"nameOverride=karpenter":                                       "nameOverride or fullnameOverride names Dovetail's objects karpenter",
		"fullnameOverride=karpenter":                                   "nameOverride or fullnameOverride names Dovetail's objects karpenter",
		"controller.resources.limits.cpu=1":                            "controller.resources.limits.cpu throttles",
		"serviceMonitor.endpointConfig.scheme=http":                    "serviceMonitor.endpointConfig.scheme has no effect",
		"prometheusRule.enabled=true":                                  "prometheusRule without serviceMonitor",
		"networkPolicy.enabled=true,settings.metricsBindAddress=:8080": "networkPolicy lets all pods read metrics",
		"mode=replace":                                                 "settings.clusterCIDR is empty: Dovetail asks EKS",
		"mode=replace,imagePullSecrets[0].name=private":                "serviceAccount.annotations and imagePullSecrets have no effect",
	} {
		if notes := mustRender(t, release{}, set).notes(); !strings.Contains(notes, "- "+want) {
			t.Errorf("%s: no warning %q in\n%s", set, want, notes)
		}
	}
	if notes := mustRender(t, release{}, "settings.provisionFor[0]=default-scheduler,settings.provisionFor[1]=other").notes(); !strings.Contains(notes, "so do pods of default-scheduler, other") {
		t.Errorf("the notes don't say for which other schedulers nodes are launched:\n%s", notes)
	}
	if config := mustRender(t, release{}, "clientConnection.qps=900").documents(); !strings.Contains(config, "qps: 900\n") || !strings.Contains(config, "burst: 1000\n") {
		t.Error("clientConnection isn't in the configuration")
	}
	// What is left out of a scrape's settings leaves no trace.
	monitor := mustRender(t, release{}, "serviceMonitor.enabled=true,serviceMonitor.endpointConfig.scheme=http")["servicemonitor.yaml"]
	var parsed map[string]any
	if err := yaml.Unmarshal([]byte(monitor), &parsed); err != nil {
		t.Errorf("%v in\n%s", err, monitor)
	}
}

// What is wrong is named.
func TestWrongValues(t *testing.T) {
	for set, want := range map[string]string{
		"mode=third":                                                         "/mode",
		"replicas=two":                                                       "/replicas",
		"setings.clusterName=blue":                                           "'setings' not allowed",
		"settings.clusterNane=blue":                                          "'clusterNane' not allowed",
		"settings.clusterName=blue green":                                    "/settings/clusterName",
		"settings.clusterName=":                                              "settings.clusterName: required",
		"settings.region=Oregon":                                             "/settings/region",
		"settings.interruptionQueue=https://sqs/x":                           "/settings/interruptionQueue",
		"settings.batchIdleDuration=3":                                       "/settings/batchIdleDuration",
		"settings.metricsBindAddress=localhost":                              "/settings/metricsBindAddress",
		"settings.metricsBindAddress=:0":                                     "/settings/metricsBindAddress",
		"settings.metricsBindAddress=:10259":                                 "settings.metricsBindAddress: :10259 is the port of metrics over HTTPS",
		"settings.maxDollarsPerHour=-1":                                      "/settings/maxDollarsPerHour",
		"settings.preferencePolicy=Maybe":                                    "/settings/preferencePolicy",
		"settings.vmMemoryOverheadPercent=7.5":                               "/settings/vmMemoryOverheadPercent",
		"profile.scoringStrategy=Most":                                       "/profile/scoringStrategy",
		"profile.binderArgs.lateafter=3m":                                    "'lateafter' not allowed",
		"profile.pluginConfig[0].name=Provision":                             "/profile/pluginConfig/0",
		"schedulerConfiguration.profiles=null":                               "propertyName 'profiles'",
		"clientConnection.qps=0":                                             "/clientConnection/qps",
		"clientConnection.kubeconfig=/root/config":                           "'kubeconfig' not allowed",
		"image.repository=":                                                  "image.repository: required",
		"image.repository=registry.example/x:1":                              "/image/repository",
		"image.digest=latest":                                                "/image/digest",
		"logLevel=verbose":                                                   "/logLevel",
		"extraArgs[0]=v":                                                     "/extraArgs/0",
		"extraArgs[0]=--config=/etc/scheduler.yaml":                          "extraArgs: --config=/etc/scheduler.yaml would replace",
		"additionalProfiles[0].schedulerName=dovetail-scheduler":             "additionalProfiles: dovetail-scheduler is the profile that this chart writes",
		"mode=replace,additionalProfiles[0].schedulerName=default-scheduler": "additionalProfiles: default-scheduler is the profile that this chart writes",
		"extraArgs[0]=--kubeconfig":                                          "extraArgs: --kubeconfig would replace",
		"extraArgs[0]=--profiling=false":                                     "extraArgs: kube-scheduler ignores --profiling=false",
		"extraArgs[0]=--kube-api-qps":                                        "extraArgs: kube-scheduler ignores --kube-api-qps",
		"nodePools[0].name=default":                                          "/nodePools/0",
		"schedulerName=dovetail-scheduler":                                   "schedulerName: dovetail-scheduler is Dovetail's own profile",
		"serviceAccount.create=false":                                        "serviceAccount.name: required",
		"serviceMonitor.prometheusServiceAccount.name=a":                     "/serviceMonitor/prometheusServiceAccount",
	} {
		if _, err := render(t, release{}, set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--set %s: %v, want a word on %q", set, err, want)
		}
	}
	if _, err := render(t, release{namespace: "dovetail"}, "mode=replace"); err == nil || !strings.Contains(err.Error(), "namespace kube-system") {
		t.Errorf("mode replace in another namespace: %v", err)
	}
}

// Every value is in the schema, with its default; everything else in the schema says that it is Karpenter's, or is a setting of the scheduler.
func TestSchemaHasAllValues(t *testing.T) {
	for _, chart := range []string{"dovetail", "dovetail-crd"} {
		folder := filepath.Join(root, "charts", chart)
		values, err := readValues([]string{filepath.Join(folder, "values.yaml")}, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(folder, "values.schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		var schema schemaNode
		if err := json.Unmarshal(data, &schema); err != nil {
			t.Fatal(err)
		}
		schema.compare(t, "", values)
	}
}

type schemaNode struct {
	Description string
	Properties  map[string]*schemaNode
}

func (s *schemaNode) compare(t *testing.T, path string, values map[string]any) {
	for name, value := range values {
		node := s.Properties[name]
		if node == nil {
			t.Errorf("the schema has no %s%s", path, name)
		} else if table, ok := value.(map[string]any); ok && node.Properties != nil {
			node.compare(t, path+name+".", table)
		}
	}
	for name, node := range s.Properties {
		_, has := values[name]
		if !has && path != "settings." && name != "global" && !strings.HasPrefix(node.Description, "of Karpenter's chart") && !slices.Contains(optional, path+name) {
			t.Errorf("values.yaml has no %s%s", path, name)
		}
	}
}

// optional are values without a default.
var optional = []string{
	"namespacePolicy.namespaceSelector.matchExpressions", "podDisruptionBudget.minAvailable", "podDisruptionBudget.unhealthyPodEvictionPolicy",
	"profile.binderArgs.earliestBinding", "profile.binderArgs.gateDeadline", "profile.binderArgs.lateAfter", "controller.resources.claims",
	"serviceMonitor.prometheusServiceAccount.name", "serviceMonitor.prometheusServiceAccount.namespace",
}

// With everything switched on, all objects are well-formed, belong to the release, and are called differently.
func TestEverythingOn(t *testing.T) {
	everything := []string{"namespacePolicy.enabled=true,surge.enabled=true,admissionPolicies.enabled=true,serviceMonitor.enabled=true,prometheusRule.enabled=true,networkPolicy.enabled=true,profile.gangs=true",
		"serviceMonitor.prometheusServiceAccount.name=prometheus,serviceMonitor.prometheusServiceAccount.namespace=monitoring",
		"nodePools[0].name=default,nodePools[0].spec.weight=1,ec2NodeClasses[0].name=default,ec2NodeClasses[0].spec.role=node",
		"additionalLabels.team=blue,additionalAnnotations.owner=me", "profile.binderArgs.lateAfter=5m,settings.reservedENIs=1,settings.provisionFor[0]=default-scheduler",
		"controller.env[0].name=AWS_REGION,controller.env[0].value=us-west-2,controller.sidecarContainer[0].name=proxy,controller.sidecarContainer[0].image=proxy:1"}
	all := objects(t, mustRender(t, release{namespace: "dovetail"}, everything...).documents())
	for name, o := range all {
		if o.Metadata.Labels["app.kubernetes.io/managed-by"] != "Helm" || o.Metadata.Labels["team"] != "blue" || o.Metadata.Annotations["owner"] != "me" {
			t.Errorf("%s has labels %v and annotations %v", name, o.Metadata.Labels, o.Metadata.Annotations)
		}
		// Nothing that pools and classes are about may end with the release.
		if keep := o.Metadata.Annotations["helm.sh/resource-policy"] == "keep"; keep != (o.Kind == "NodePool" || o.Kind == "EC2NodeClass") {
			t.Errorf("%s: kept when the release goes: %t", name, keep)
		}
		if bytes.Contains(o.raw, []byte("namespace: kube-system")) && o.Metadata.Namespace != "kube-system" {
			t.Errorf("%s names kube-system, and the release is in another namespace:\n%s", name, o.raw)
		}
	}
	for _, name := range []string{"ServiceAccount dovetail/dovetail-scheduler", "ConfigMap dovetail/dovetail-scheduler", "Role dovetail/dovetail-scheduler", "Role kube-node-lease/dovetail-scheduler",
		"RoleBinding kube-system/dovetail-scheduler:authentication-reader", "Service dovetail/dovetail-scheduler", "ServiceMonitor dovetail/dovetail-scheduler", "PrometheusRule dovetail/dovetail-scheduler",
		"NetworkPolicy dovetail/dovetail-scheduler", "MutatingAdmissionPolicy /dovetail-scheduler-name", "ValidatingAdmissionPolicy /dovetail-surge", "ClusterRole /dovetail-surge", "ValidatingAdmissionPolicy /dovetail-nodes", "ValidatingAdmissionPolicyBinding /dovetail-node-leases",
		"ClusterRole /dovetail-scheduler:view", "ClusterRole /dovetail-scheduler:edit", "ClusterRole /dovetail-scheduler:admin", "NodePool /default", "EC2NodeClass /default"} {
		if _, ok := all[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}
	if policy := string(all["ValidatingAdmissionPolicy /dovetail-surge"].raw); !strings.Contains(policy, "system:serviceaccount:dovetail:dovetail-scheduler") {
		t.Errorf("the policy confines another account:\n%s", policy)
	}
	deployment := string(all["Deployment dovetail/dovetail-scheduler"].raw)
	for _, want := range []string{"name: AWS_REGION", "checksum/config:", "name: proxy"} {
		if !strings.Contains(deployment, want) {
			t.Errorf("no %s in\n%s", want, deployment)
		}
	}
}

// The port of metrics over plain HTTP is everywhere where the HTTPS port is, and nowhere if nothing listens there.
func TestPlainMetricsPort(t *testing.T) {
	for listens, want := range map[string]int{"": 0, "127.0.0.1:8123": 1, ":8123": 1} {
		all := mustRender(t, release{}, "settings.metricsBindAddress="+listens, "networkPolicy.enabled=true")
		for _, file := range []string{"service.yaml", "deployment.yaml", "networkpolicy.yaml"} {
			if got := regexp.MustCompile(`(port|containerPort): 8123\b`).FindAllString(all[file], -1); len(got) != want {
				t.Errorf("with %q, %s has the port in %q, want it %d times:\n%s", listens, file, got, want, all[file])
			}
		}
	}
}

// The ServiceMonitor scrapes one port: the plain one where other pods reach it, which takes neither a token nor TLS, or else the HTTPS port.
func TestScrapedPort(t *testing.T) {
	for listens, want := range map[string]string{"": "https", ":8123": "http", "0.0.0.0:8123": "http", "127.0.0.1:8123": "https", "localhost:8123": "https", "[::1]:8123": "https"} {
		all := mustRender(t, release{}, "settings.metricsBindAddress="+listens, "serviceMonitor.enabled=true", "serviceMonitor.endpointConfig.interval=30s")
		monitor := all["servicemonitor.yaml"]
		if n := strings.Count(monitor, "port: "); n != 1 || !strings.Contains(monitor, "port: "+want+"-metrics\n") || !strings.Contains(monitor, "scheme: "+want+"\n") || !strings.Contains(monitor, "interval: 30s") {
			t.Errorf("with %q, the ServiceMonitor doesn't scrape the port %s-metrics:\n%s", listens, want, monitor)
		}
		if secret := strings.Contains(monitor, "bearerTokenFile") && strings.Contains(monitor, "insecureSkipVerify"); secret != (want == "https") {
			t.Errorf("with %q, token and TLS: %t\n%s", listens, secret, monitor)
		}
		if !strings.Contains(all["service.yaml"], "name: "+want+"-metrics,") {
			t.Errorf("with %q, the Service has no port %s-metrics:\n%s", listens, want, all["service.yaml"])
		}
	}
}

// A changed configuration restarts the pods, and a changed annotation of other objects doesn't.
func TestConfigurationRestartsPods(t *testing.T) {
	checksum := regexp.MustCompile(`checksum/config: \w+`)
	of := func(sets ...string) string {
		return checksum.FindString(mustRender(t, release{}, sets...)["deployment.yaml"])
	}
	static := func(sets ...string) string {
		return checksum.FindString(mustRender(t, release{}, append(sets, "mode=replace")...)["config.yaml"])
	}
	if static() == static("settings.maxDollarsPerHour=10") || static() != static("additionalAnnotations.a=b") || static() == "" {
		t.Errorf("checksums of the static pod %s, %s", static(), static("settings.maxDollarsPerHour=10"))
	}
	if of() == of("settings.maxDollarsPerHour=10") || of() != of("additionalAnnotations.a=b") || of() == "" {
		t.Errorf("checksums %s, %s, %s", of(), of("settings.maxDollarsPerHour=10"), of("additionalAnnotations.a=b"))
	}
}

func TestKubernetesVersions(t *testing.T) {
	policy := func(version string) (string, error) {
		rendered, err := render(t, release{kubeVersion: version}, "namespacePolicy.enabled=true")
		return rendered["namespace-policy.yaml"], err
	}
	if text, err := policy("v1.36.2-eks-1234567"); err != nil || !strings.Contains(text, "\napiVersion: admissionregistration.k8s.io/v1\n") {
		t.Errorf("1.36: %v\n%s", err, text)
	}
	// helm takes the beta API for served when it renders without a cluster.
	if text, err := policy("v1.35.0"); err == nil && !strings.Contains(text, "\napiVersion: admissionregistration.k8s.io/v1beta1\n") || err != nil && !strings.Contains(err.Error(), "namespacePolicy.enabled") {
		t.Errorf("1.35: %v\n%s", err, text)
	}
	if notes := mustRender(t, release{kubeVersion: "v1.37.0"}).notes(); !strings.Contains(notes, "Kubernetes v1.37.0: this version") {
		t.Errorf("1.37:\n%s", notes)
	}
}

// The chart of definitions contains Karpenter's as they are in the module that Dovetail is built with, and never deletes them.
func TestDefinitions(t *testing.T) {
	out := t.TempDir()
	if err := runPackage(root, []string{"--out", out}, io.Discard); err != nil {
		t.Fatal(err)
	}
	r := release{name: "dovetail-crd", namespace: "kube-system", kubeVersion: kubeVersion}
	rendered, err := r.render(filepath.Join(out, "dovetail-crd-"+chartVersion(t, "dovetail-crd")+".tgz"), map[string]any{"capacityBuffers": true, "provisioningRequests": true, "provisioners": true})
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered.documents())
	module, err := moduleFolder(root, karpenter)
	if err != nil {
		t.Fatal(err)
	}
	sources := 0
	for _, pattern := range []string{filepath.Join(module, "pkg", "apis", "crds", "*.yaml"), filepath.Join(root, "manifests", "crds", "*.yaml")} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			sources++
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range objects(t, string(data)) {
				got := all[name]
				if !bytes.Equal(specOf(t, got.raw), specOf(t, want.raw)) {
					t.Errorf("%s differs from %s", name, path)
				}
				if got.Metadata.Annotations["helm.sh/resource-policy"] != "keep" {
					t.Errorf("%s ends with the release", name)
				}
			}
		}
	}
	if sources < 9 || len(all) != sources {
		t.Errorf("%d definitions of %d files", len(all), sources)
	}
	// Beside EKS Auto Mode, as docs/install.md says.
	values, err := readValues(nil, []string{autoMode})
	if err != nil {
		t.Fatal(err)
	}
	rendered, err = r.render(filepath.Join(out, "dovetail-crd-"+chartVersion(t, "dovetail-crd")+".tgz"), values)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, o := range objects(t, rendered.documents()) {
		left = append(left, o.Metadata.Name)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"ec2nodeclasses.karpenter.k8s.aws", "nodeoverlays.karpenter.sh", "podgroups.scheduling.x-k8s.io"}) {
		t.Errorf("beside Auto Mode the definitions are %q", left)
	}
	values["omit"] = []any{"nodepools"}
	if _, err := r.render(filepath.Join(out, "dovetail-crd-"+chartVersion(t, "dovetail-crd")+".tgz"), values); err == nil || !strings.Contains(err.Error(), "/omit/0") {
		t.Errorf("a definition that isn't Karpenter's: %v", err)
	}
	if _, err := r.render(filepath.Join(root, "charts", "dovetail-crd"), nil); err == nil || !strings.Contains(err.Error(), "make chart") {
		t.Errorf("the chart's folder, without definitions: %v", err)
	}
	if _, err := (release{name: "dovetail", namespace: "kube-system", kubeVersion: kubeVersion}).render(filepath.Join(out, "dovetail-"+chartVersion(t, "dovetail")+".tgz"), needed()); err != nil {
		t.Errorf("the package of the other chart: %v", err)
	}
}

// autoMode is what leaves out the definitions that EKS Auto Mode has installed.
const autoMode = "omit={nodepools.karpenter.sh,nodeclaims.karpenter.sh}"

func specOf(t *testing.T, document []byte) []byte {
	t.Helper()
	var o struct {
		Spec any `json:"spec"`
	}
	if err := yaml.Unmarshal(document, &o); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(o.Spec)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func chartVersion(t *testing.T, chart string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "charts", chart, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct{ Version, AppVersion string }
	if err := yaml.Unmarshal(data, &c); err != nil || c.Version == "" || c.Version != c.AppVersion {
		t.Fatalf("chart %s: %v, version %q, appVersion %q", chart, err, c.Version, c.AppVersion)
	}
	return c.Version
}

// The charts have the version of Dovetail.
func TestVersion(t *testing.T) {
	source, err := os.ReadFile(filepath.Join(root, "pkg", "version", "version.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{"dovetail", "dovetail-crd"} {
		if line := fmt.Sprintf("const Version = %q", chartVersion(t, chart)); !strings.Contains(string(source), line) {
			t.Errorf("pkg/version doesn't say %s, as chart %s does", line, chart)
		}
	}
}

// Alerts name metrics that exist, with labels that they have.
func TestAlertsNameMetrics(t *testing.T) {
	alerts, err := os.ReadFile(filepath.Join(root, "charts", "dovetail", "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var docs []byte
	for _, page := range []string{"signals.md", "aws.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, text...)
	}
	found := 0
	for _, name := range regexp.MustCompile(`\bdovetail_\w+`).FindAllString(string(alerts), -1) {
		found++
		if name = strings.TrimSuffix(name, "_bucket"); !bytes.Contains(docs, []byte("`"+name+"`")) {
			t.Errorf("an alert names the metric %s, which no page has", name)
		}
	}
	if found < 8 {
		t.Errorf("%d metrics in alerts: this test looks at the wrong file", found)
	}
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Expr        string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(alerts, &rules); err != nil {
		t.Fatal(err)
	}
	for _, rule := range rules.Groups[0].Rules {
		if rule.Alert == "" || rule.Expr == "" || rule.Annotations["summary"] == "" || rule.Annotations["runbook"] == "" {
			t.Errorf("alert %q says too little", rule.Alert)
		}
	}
}
