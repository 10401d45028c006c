package karpenter

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

// fieldCase tests fields of a kind: a valid value with its effect, and invalid values with the field that the error must name.
type fieldCase struct {
	// fields are the definition's leaves that the case covers: "taints[].key", "limits{}".
	fields []string
	// at is the path at which the values are set.
	at, valid string
	// want is what see returns for the object with the valid value.
	want    string
	invalid []wrong
}

type wrong struct{ value, names string }

// kindOfFields defines how the fields of a kind are tested.
type kindOfFields struct {
	kind string
	base string // the object in which values are set
	// see returns the effect of the object as text.
	see func(t *testing.T, u *unstructured.Unstructured, at string) string
	// more returns the problems that a condition reports, beyond the definition's.
	more func(t *testing.T, u *unstructured.Unstructured) []string
}

func (k *kindOfFields) run(t *testing.T, cases []fieldCase) {
	covered := map[string]bool{}
	for _, tc := range cases {
		for _, f := range tc.fields {
			covered[f] = true
		}
		t.Run(tc.at, func(t *testing.T) {
			u := k.with(t, tc.at, tc.valid)
			if problems := k.problems(t, u); len(problems) > 0 {
				t.Fatalf("%s: %s is refused: %q", tc.at, tc.valid, problems)
			}
			if diff := cmp.Diff(tc.want, k.see(t, u, tc.at)); diff != "" {
				t.Errorf("%s: %s is seen as (-want +got):\n%s", tc.at, tc.valid, diff)
			}
			for _, w := range tc.invalid {
				problems := k.problems(t, k.with(t, tc.at, w.value))
				if !slices.ContainsFunc(problems, func(p string) bool {
					rest, ok := strings.CutPrefix(p, w.names)
					return ok && (rest == "" || strings.ContainsRune(":[. ", rune(rest[0])))
				}) {
					t.Errorf("%s: %s is refused with %q, want %s named", tc.at, w.value, problems, w.names)
				}
			}
		})
	}
	for _, crd := range nodeclass.CRDs() {
		if crd.Spec.Names.Kind != k.kind {
			continue
		}
		spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
		eachField("", &spec, func(f string) {
			if !covered[f] {
				t.Errorf("%s: no case for spec.%s", k.kind, f)
			}
			delete(covered, f)
		})
	}
	for f := range covered {
		t.Errorf("%s has no field spec.%s", k.kind, f)
	}
}

// problems returns the problems that the definition finds, and those that a condition reports.
func (k *kindOfFields) problems(t *testing.T, u *unstructured.Unstructured) (out []string) {
	t.Helper()
	u = u.DeepCopy()
	for _, err := range shipped.Admit(u) {
		out = append(out, err.Error())
	}
	return append(out, k.more(t, u)...)
}

func (k *kindOfFields) with(t *testing.T, at, value string) *unstructured.Unstructured {
	t.Helper()
	u := fromYAML(t, k.base)
	var v any
	raw, err := yaml.YAMLToJSON([]byte(value))
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.Object["spec"] = put(u.Object["spec"], splitPath(at), v)
	// Like the API server's JSON, with integers.
	raw, err = u.MarshalJSON()
	if err == nil {
		err = u.UnmarshalJSON(raw)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

var pathParts = regexp.MustCompile(`[^.\[\]]+`)

// splitPath returns the parts of "a.b[0].c".
func splitPath(path string) []string { return pathParts.FindAllString(path, -1) }

// put sets a value deep in a tree and creates what is missing on the way.
func put(tree any, path []string, v any) any {
	if len(path) == 0 {
		return v
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := tree.([]any)
		for len(list) <= i {
			list = append(list, nil)
		}
		list[i] = put(list[i], path[1:], v)
		return list
	}
	m, _ := tree.(map[string]any)
	if m == nil {
		m = map[string]any{}
	}
	m[path[0]] = put(m[path[0]], path[1:], v)
	return m
}

// eachField calls f for every leaf of a schema: "a.b[].c" for lists, "a{}" for maps.
func eachField(path string, s *apiextensionsv1.JSONSchemaProps, f func(string)) {
	switch {
	case len(s.Properties) > 0:
		for name, c := range s.Properties {
			eachField(strings.TrimPrefix(path+"."+name, "."), &c, f)
		}
	case s.Items != nil && s.Items.Schema != nil:
		eachField(path+"[]", s.Items.Schema, f)
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		eachField(path+"{}", s.AdditionalProperties.Schema, f)
	default:
		f(path)
	}
}

// used returns the object as the store reads it.
func used[T client.Object](t *testing.T, u *unstructured.Unstructured, fresh func() client.Object) T {
	t.Helper()
	u = u.DeepCopy()
	shipped.Admit(u) // for the defaults
	return Decode(u, fresh).(T)
}

func fieldTexts(errs field.ErrorList) (out []string) {
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// refusedAs returns a case for each of the values that must be refused with these fields named.
func refusedAs(names string, values ...string) (out []wrong) {
	for _, v := range values {
		out = append(out, wrong{v, names})
	}
	return out
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(raw)
}
