package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// read reads documents from standard input.
func read(t *testing.T, text string) *Set {
	t.Helper()
	s, err := Read(Options{Definitions: definitions, Manifests: []string{"-"}, Stdin: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines splits joined errors into one line each.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestSplit(t *testing.T) {
	const a, b = "{apiVersion: v1, kind: Namespace, metadata: {name: a}}", "{apiVersion: v1, kind: Namespace, metadata: {name: b}}"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"one document", a, []string{"x: document 1: Namespace a"}},
		{"documents, the first behind a separator and a comment", "# both\n---\n" + a + "\n---\n" + b + "\n", []string{"x: document 1: Namespace a", "x: document 2: Namespace b"}},
		{"empty documents count", a + "\n---\n# nothing\n---\n\n---  # here\n" + b, []string{"x: document 1: Namespace a", "x: document 4: Namespace b"}},
		{"lines that end as on Windows", a + "\r\n---\r\n" + b + "\r\n", []string{"x: document 1: Namespace a", "x: document 2: Namespace b"}},
		{"a line in a text that looks like a separator", "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n  annotations:\n    text: |\n      one\n      ---\n      two\n", []string{"x: document 1: Namespace a"}},
		{"JSON", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, []string{"x: document 1: Namespace a"}},
		{"a list", "{apiVersion: v1, kind: List, items: [" + a + ", " + b + "]}", []string{"x: document 1, item 1: Namespace a", "x: document 1, item 2: Namespace b"}},
		{"a typed list, whose items don't say what they are", "{apiVersion: v1, kind: NamespaceList, items: [{metadata: {name: a}}]}", []string{"x: document 1, item 1: Namespace a"}},
		{"items that say a part of it, all of it, or something else", "{apiVersion: v1, kind: NamespaceList, items: [{apiVersion: v1, metadata: {name: a}}, " + b + ", {apiVersion: v1, kind: Pod, metadata: {name: c}}]}",
			[]string{"x: document 1, item 1: Namespace a", "x: document 1, item 2: Namespace b", "x: document 1, item 3: Pod c"}},
		{"an empty item", "{apiVersion: v1, kind: NamespaceList, items: [{}]}", []string{"x: document 1, item 1: Namespace"}},
		{"an item that is null", "{apiVersion: v1, kind: NamespaceList, items: [null]}", []string{"x: document 1, item 1: this is not a Kubernetes object: apiVersion and kind are required"}},
		{"a list of null", "{apiVersion: v1, kind: List, items: null}", nil},
		{"an empty list", "{apiVersion: v1, kind: List, items: []}", nil},
		{"nothing", "", nil},
		{"broken YAML, by its line in the file", a + "\n---\n" + b + "\n---\na: [b\n", []string{"x: document 1: Namespace a", "x: document 2: Namespace b",
			"x: document 3: yaml: line 5: did not find expected ',' or ']'"}},
		{"a key twice", "apiVersion: v1\nkind: Namespace\nkind: Pod\n", []string{`x: document 1: yaml: unmarshal errors:`, `  line 3: key "kind" already set in map`}},
		{"no object", "- a\n---\n{kind: Pod}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: 1}}", []string{
			"x: document 1: this is not a Kubernetes object: it is of type array",
			"x: document 2: this is not a Kubernetes object: apiVersion and kind are required",
			"x: document 3: this is not a Kubernetes object: metadata.name is of type number"}},
		{"items that are none", "{apiVersion: v1, kind: List, items: {}}", []string{"x: document 1: List: items: json: cannot unmarshal object into Go value of type []json.RawMessage"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			docs, errs := split("x", []byte(tc.text))
			var got []string
			for i := range docs {
				got = append(got, docs[i].Source.String()+": "+docs[i].name())
			}
			for _, err := range errs {
				got = append(got, lines(err)...)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("documents and errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	folder := t.TempDir()
	for name, text := range map[string]string{
		"b.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: b}}", "a/c.yml": "{apiVersion: v1, kind: Namespace, metadata: {name: c}}",
		"a.json": `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`, "values.txt": "not: looked at", "empty/README.md": "",
	} {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	docs, errs := documents([]string{folder, "-"}, strings.NewReader("{apiVersion: v1, kind: Namespace, metadata: {name: stdin}}"))
	var got []string
	for i := range docs {
		got = append(got, docs[i].head.Metadata.Name)
	}
	if diff := cmp.Diff([]string{"c", "a", "b", "stdin"}, got); diff != "" || len(errs) > 0 {
		t.Errorf("names (-want +got):\n%s\nerrors: %v", diff, errs)
	}
	// Every path that can't be read is reported.
	_, errs = documents([]string{filepath.Join(folder, "none"), filepath.Join(folder, "empty")}, nil)
	if len(errs) != 2 || !strings.Contains(errs[0].Error(), "no such file") || !strings.Contains(errs[1].Error(), "no .yaml, .yml or .json file in this folder") {
		t.Errorf("errors %v", errs)
	}
}

// What an API server lists is the same object as what kubectl prints of it: kind and apiVersion of items may be missing, and fields that the type doesn't
// have are ignored.
func TestListingsAreReadAsFiles(t *testing.T) {
	for kind, object := range map[string]string{
		"v1/Pod":                            `"metadata":{"name":"a","namespace":"shop","uid":"u"},"spec":{"nodeName":"n","unheardOf":1,"containers":[{"name":"c","ports":[{"containerPort":80}],"resources":{"requests":{"cpu":"500m"}}}]}`,
		"karpenter.sh/v1/NodePool":          `"metadata":{"name":"a","uid":"u"},"spec":{"weight":3,"unheardOf":1,"limits":{"cpu":4},"disruption":{"consolidateAfter":"30s"},"template":{"spec":{"expireAfter":"Never"}}},"status":{"resources":{"cpu":"2"}}`,
		"karpenter.sh/v1/NodeClaim":         `"metadata":{"name":"a","uid":"u","creationTimestamp":"2026-11-27T08:00:00Z"},"status":{"nodeName":"n","capacity":{"cpu":"2"},"conditions":[{"type":"Launched","status":"True"}]}`,
		"karpenter.k8s.aws/v1/EC2NodeClass": `"metadata":{"name":"a","uid":"u"},"spec":{"kubelet":{"maxPods":20},"blockDeviceMappings":[{"ebs":{"volumeSize":"20Gi"}}]},"status":{"subnets":[{"id":"s","zone":"z"}]}`,
	} {
		at := strings.LastIndex(kind, "/")
		version, name := kind[:at], kind[at+1:]
		file := filepath.Join(t.TempDir(), "object.json")
		if err := os.WriteFile(file, []byte(`{"apiVersion":"`+version+`","kind":"`+name+`",`+object+`}`), 0o600); err != nil {
			t.Fatal(err)
		}
		want, err := Read(Options{Definitions: definitions, Existing: []string{file}})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Read(Options{Definitions: definitions, Cluster: []Listing{{Name: "list", JSON: []byte(`{"apiVersion":"` + version + `","kind":"` + name + `List","items":[{` + object + `}]}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		a, b := All[client.Object](want), All[client.Object](got)
		if len(a) != 1 || len(b) != 1 || !reflect.DeepEqual(a[0], b[0]) || a[0].GetObjectKind().GroupVersionKind().Kind != name {
			t.Errorf("%s: a file has %+v, a listing %+v", kind, a, b)
		}
	}
}

// Answers keep their order, however many are read at a time, and errors name the answer and the object.
func TestListingsKeepTheirOrder(t *testing.T) {
	var listings []Listing
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("ns-%d", i)
		want = append(want, name, name+"-b")
		listings = append(listings, Listing{Name: "namespaces", JSON: []byte(`{"apiVersion":"v1","kind":"NamespaceList","items":[{"metadata":{"name":"` + name + `"}},{"metadata":{"name":"` + name + `-b"}}]}`)})
	}
	set, err := Read(Options{Definitions: definitions, Cluster: listings})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, ns := range All[*corev1.Namespace](set) {
		got = append(got, ns.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("namespaces (-want +got):\n%s", diff)
	}
	listings = append(listings, Listing{Name: "nodes", JSON: []byte(`{"apiVersion":"v1","kind":"NodeList","items":[{"metadata":{"name":"n"},"spec":{"unschedulable":"yes"}}]}`)})
	if _, err := Read(Options{Definitions: definitions, Cluster: listings}); err == nil || err.Error() != "the cluster's nodes: document 1, item 1: Node n: spec.unschedulable: a string where bool is expected" {
		t.Errorf("the error is %v", err)
	}
}
