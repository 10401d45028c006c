package karpenter

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apischema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// legacyDefinitions are the definitions in manifests/crds, by kind.
var legacyDefinitions = sync.OnceValues(func() (map[string]*definition, error) {
	out := map[string]*definition{}
	contents, err := manifests.Folder("crds")
	for _, content := range contents {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, err
		}
		d, err := newDefinition(crd)
		if err != nil {
			return nil, err
		}
		out[crd.Spec.Names.Kind] = d
	}
	return out, err
})

// refusedBy returns an API server's errors for an object under our definitions, and the fields that it doesn't know.
func refusedBy(t testing.TB, u *unstructured.Unstructured) (errs field.ErrorList, unknown []string) {
	t.Helper()
	all, err := legacyDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	d := all[u.GetKind()]
	if d == nil {
		t.Fatalf("no definition of %s", u.GetKind())
	}
	u = u.DeepCopy()
	unknown = pruning.PruneWithOptions(u.Object, d.structural, true, apischema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	return d.admit(u, nil), unknown
}

func asUnstructured(t testing.TB, k CustomKind, o client.Object) *unstructured.Unstructured {
	t.Helper()
	raw, err := json.Marshal(o)
	u := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(raw, &u.Object)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.SetGroupVersionKind(k.GroupVersionKind)
	return u
}

// An API server accepts the definitions, including the cost of their rules.
func TestLegacyDefinitionsAreValid(t *testing.T) {
	contents, err := manifests.Folder("crds")
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range contents {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		internal.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
		if errs := crdvalidation.ValidateCustomResourceDefinition(t.Context(), internal); len(errs) > 0 {
			t.Errorf("%s: %v", crd.Name, errs.ToAggregate())
		}
	}
}

// An API server accepts the shipped examples, and pools can be derived from them.
func TestExampleProvisioners(t *testing.T) {
	contents, err := manifests.Folder("examples/provisioner")
	if err != nil {
		t.Fatal(err)
	}
	templates := map[string]*legacy.AWSNodeTemplate{}
	var all []*legacy.Provisioner
	for document := range strings.SplitSeq(string(contents[0]), "\n---\n") {
		u := fromYAML(t, document)
		if errs, unknown := refusedBy(t, u); len(errs) > 0 || len(unknown) > 0 {
			t.Errorf("%s %s: %v, unknown fields %v", u.GetKind(), u.GetName(), errs, unknown)
		}
		if u.GetKind() == templateKind {
			templates[u.GetName()] = Decode(u, NodeTemplates.New).(*legacy.AWSNodeTemplate)
		} else {
			all = append(all, Decode(u, Provisioners.New).(*legacy.Provisioner))
		}
	}
	if len(all) != 2 || len(templates) != 1 {
		t.Fatalf("%d Provisioners and %d templates", len(all), len(templates))
	}
	for _, p := range all {
		var template *legacy.AWSNodeTemplate
		if ref := p.Spec.ProviderRef; ref != nil {
			template = templates[ref.Name]
		}
		np, _, errs := fromProvisioner(p, template, nodeclass.Legacy{})
		if len(errs) > 0 {
			t.Errorf("%s: %v", p.Name, errs.ToAggregate())
		} else if pool := PoolOf(np, classKind); pool.Unready != "" {
			t.Error(pool.Unready)
		}
	}
}
