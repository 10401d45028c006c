package karpenter

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
)

// drivenFields are the fields of a legacy kind that a table's cases set, compared with its definition, so that a new field without a
// case is found.
type drivenFields struct {
	t      *testing.T
	schema apiextensionsv1.JSONSchemaProps
	seen   map[string]bool
}

func newDrivenFields(t *testing.T, k CustomKind) *drivenFields {
	t.Helper()
	contents, err := manifests.Folder("crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range contents {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			t.Fatal(err)
		}
		if crd.Spec.Names.Kind == k.Kind {
			return &drivenFields{t: t, schema: crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], seen: map[string]bool{}}
		}
	}
	t.Fatalf("there is no definition of %s", k.Kind)
	return nil
}

// by records which fields a case sets.
func (d *drivenFields) by(spec string) {
	d.t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(spec), &v); err != nil {
		d.t.Fatalf("%s: %v", spec, err)
	}
	d.mark("", &d.schema, v)
}

// mark names leaves as eachField does.
func (d *drivenFields) mark(path string, s *apiextensionsv1.JSONSchemaProps, v any) {
	switch m, l := asMap(v), asList(v); {
	case len(s.Properties) > 0:
		for name, c := range s.Properties {
			if one, set := m[name]; set {
				d.mark(strings.TrimPrefix(path+"."+name, "."), &c, one)
			}
		}
	case s.Items != nil && s.Items.Schema != nil:
		for _, one := range l {
			d.mark(path+"[]", s.Items.Schema, one)
		}
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		for _, one := range m {
			d.mark(path+"{}", s.AdditionalProperties.Schema, one)
		}
	default:
		d.seen[path] = true
	}
}

func asMap(v any) map[string]any { m, _ := v.(map[string]any); return m }
func asList(v any) []any         { l, _ := v.([]any); return l }

// all requires a case for each field below, except for those that are tested elsewhere or accept any value.
func (d *drivenFields) all(below string, except ...string) {
	d.t.Helper()
	eachField("", &d.schema, func(f string) {
		exempt := slices.ContainsFunc(except, func(e string) bool { return f == e || strings.HasSuffix(e, ".") && strings.HasPrefix(f, e) })
		if strings.HasPrefix(f, below) && !exempt && !d.seen[f] {
			d.t.Errorf("no case sets spec.%s", f)
		}
	})
}
