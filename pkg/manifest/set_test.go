package manifest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

var definitions = karpenter.NewDefinitions(nodeclass.CRDs())

// web returns a Deployment; more is appended to its pod's spec.
func web(replicas, more string) string {
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: ` + replicas + `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: web}]
` + more
}

func TestWhatIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"a value of another kind", web("three", ""), []string{"Deployment default/web: spec.replicas: a string where int32 is expected"}},
		{"a quantity that is none", web("1", "      overhead: {cpu: lots}"), []string{
			"Deployment default/web: spec.template.spec.overhead.cpu: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"}},
		{"several such fields, labels among them", "{apiVersion: v1, kind: Pod, metadata: {name: p, labels: {v: 1}}, spec: {priority: high}}", []string{
			"Pod default/p: metadata.labels.v: a number where string is expected", "Pod default/p: spec.priority: a string where int32 is expected"}},
		{"what the API server refuses", web("-1", ""), []string{"Deployment default/web: spec.replicas: Invalid value: -1: must be greater than or equal to 0"}},
		{"a selector that doesn't select", strings.Replace(web("1", ""), "{app: web}}\n    spec", "{app: wed}}\n    spec", 1), []string{
			"Deployment default/web: spec.template.metadata.labels: Invalid value: {\"app\":\"wed\"}: `selector` does not match template `labels`"}},
		{"a version that isn't served", strings.Replace(web("1", ""), "apps/v1", "apps/v1beta1", 1), []string{
			"Deployment web: apiVersion: apps/v1beta1 is not supported, apps/v1 is"}},
		{"the same object twice", web("1", "") + "---" + web("2", ""), []string{"standard input: document 2: Deployment default/web: it is already in standard input: document 1"}},
		{"a rule of a definition", "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: p}, spec: {weight: 101, template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}}}}}",
			[]string{"NodePool p: spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100"}},
		{"a duration that fits the pattern and nothing else", "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: p}, spec: {template: {spec: {expireAfter: 9999999h, requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}}}}}",
			[]string{`NodePool p: spec.template.spec.expireAfter: time: invalid duration "9999999h"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Stdin: strings.NewReader(tc.text)})
			got := lines(err)
			for i := range got {
				if len(tc.want) > i && !strings.HasPrefix(tc.want[i], "standard") {
					got[i] = strings.TrimPrefix(got[i], "standard input: document 1: ")
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsIgnored(t *testing.T) {
	s := read(t, web("1", "      contaners: []")+`
---
{apiVersion: v1, kind: Service, metadata: {name: web}}
---
{apiVersion: v1, kind: Service, metadata: {name: db}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: web}}
---
{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}}
---
{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: web, namespace: shop}}
---
{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: db, namespace: shop}}
---
{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: old}, spec: {taint: []}}
`)
	want := []string{
		`standard input: document 1: Deployment default/web: unknown field "spec.template.spec.contaners" is ignored`,
		"standard input: document 5: CronJob nightly is ignored: it is not known when its jobs will run",
		`standard input: document 8: Provisioner old: unknown field "spec.taint" is ignored`,
		"Rollout (argoproj.io/v1alpha1) is not understood and ignored: shop/web in standard input: document 6 and 1 more",
		"ignored, because they don't affect where pods are placed: 1 Role",
	}
	if diff := cmp.Diff(want, s.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if len(All[*appsv1.Deployment](s)) != 1 || len(All[*legacy.Provisioner](s)) != 1 {
		t.Error("what was understood is not in the set")
	}
}

// Warnings are returned together with errors, because they may explain them.
func TestWarningsComeWithErrors(t *testing.T) {
	s, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Stdin: strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {contaners: []}}")})
	if err == nil || !strings.Contains(err.Error(), "Pod default/p: spec.containers: Required value") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff([]string{`standard input: document 1: Pod default/p: unknown field "spec.contaners" is ignored`}, s.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestDefaultsOfTheAPIServer(t *testing.T) {
	s := read(t, web("null", "")+`
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p, namespace: nonsense}
spec: {template: {spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: c}}}}
`)
	d := All[*appsv1.Deployment](s)[0]
	if d.Namespace != "default" || *d.Spec.Replicas != 1 || d.Spec.Template.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("namespace %q, %d replicas, scheduler %q: not defaulted", d.Namespace, *d.Spec.Replicas, d.Spec.Template.Spec.SchedulerName)
	}
	p := All[*karpv1.NodePool](s)[0]
	if p.Spec.Template.Spec.ExpireAfter.String() != "720h0m0s" {
		t.Errorf("expireAfter %v: the definition's default is 720h", p.Spec.Template.Spec.ExpireAfter)
	}
}

func TestNamespaceOfObjectsThatNameNone(t *testing.T) {
	s, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Namespace: "shop", Stdin: strings.NewReader(web("1", "") + "---\n{apiVersion: v1, kind: Node, metadata: {name: node-a}}")})
	if err != nil {
		t.Fatal(err)
	}
	if got := All[*appsv1.Deployment](s)[0].Namespace + "," + All[*corev1.Node](s)[0].Namespace; got != "shop," {
		t.Errorf("namespaces %q, want shop for the Deployment and none for the Node", got)
	}
}

// Objects in the manifests replace existing ones, except pods, and existing objects aren't validated again.
func TestExisting(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte(`
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: node-a}, newField: {}}
- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {nodeName: node-a, containers: []}}
- {apiVersion: apps/v1, kind: Deployment, metadata: {name: gone, namespace: default}}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: old}}}
- {apiVersion: v1, kind: Event, metadata: {name: e, namespace: default}}
- {apiVersion: example.com/v1, kind: Thing, metadata: {name: e, namespace: default}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Existing: []string{file}, Stdin: strings.NewReader(web("1", "") + `
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {team: new}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: c}]}}
`)})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range s.entries {
		got = append(got, e.source.String()[strings.LastIndex(e.source.String(), "/")+1:]+" "+e.object.GetName())
	}
	want := []string{"standard input: document 1 web", "standard input: document 2 shop", "cluster.yaml: document 1, item 2 p", "cluster.yaml: document 1, item 1 node-a", "cluster.yaml: document 1, item 5 e"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if len(s.Warnings) > 0 {
		t.Errorf("warnings about what is there: %q", s.Warnings)
	}
}

func TestDefaultPool(t *testing.T) {
	s, err := Read(Options{Definitions: definitions, DefaultPool: true})
	if err != nil {
		t.Fatal(err)
	}
	if pools := All[*karpv1.NodePool](s); len(pools) != 1 || pools[0].Name != "default" || len(s.Warnings) > 0 {
		t.Errorf("pools %v, warnings %q", pools, s.Warnings)
	}
	_, err = Read(Options{Definitions: definitions, DefaultPool: true, Manifests: []string{"-"}, Stdin: strings.NewReader(string(defaultPool))})
	if err == nil || !strings.Contains(err.Error(), "the pool of --default-pool: document 1: NodePool default: it is already in standard input: document 1") {
		t.Errorf("two pools of one name: %v", err)
	}
}
