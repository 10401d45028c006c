package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/awslabs/operatorpkg/status"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

// The kinds that the tests' objects are of.
var (
	classKind = nodeclass.Kind.GroupKind()
	kinds     = []karpenter.CustomKind{
		karpenter.NodePools, karpenter.NodeClaims, karpenter.NodeOverlays, karpenter.NodeClasses(nodeclass.Kind), karpenter.Provisioners, karpenter.NodeTemplates,
	}
)

// What tests begin with.
var (
	start, testInstance            = fixtures.Start, fixtures.Instance
	testPool, testClass, testClaim = fixtures.Pool, fixtures.Class, fixtures.Claim
	plain, fromYAML                = fixtures.Plain, fixtures.FromYAML
	testOverlay, price, adjusted   = fixtures.Overlay, fixtures.Price, fixtures.Adjusted
	twoTypes, offered, byHand      = fixtures.TwoTypes, fixtures.Offered, fixtures.ByHand
)

const (
	inline  = fixtures.Inline
	byRef   = fixtures.ByRef
	settled = fixtures.Settled

	inlineClass, inlinePool = fixtures.InlineClass, fixtures.InlinePool
)

// definitions are those of the cloud's module and our own.
var definitions = sync.OnceValues(func() (karpenter.Definitions, error) {
	all := nodeclass.CRDs()
	contents, err := manifests.Folder("crds")
	for _, content := range contents {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, err
		}
		all = append(all, crd)
	}
	return karpenter.NewDefinitions(all), err
})

// acceptable returns why an API server would refuse a part of the object ("" is all of it), or nil. Kinds without a definition pass.
func acceptable(o any, part string) error {
	all, err := definitions()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	errs := slices.DeleteFunc(all.Admit(u), func(err *field.Error) bool { return !strings.HasPrefix(err.Field, part) })
	if len(errs) > 0 {
		return fmt.Errorf("the API server refuses %s %s: %w", u.GetKind(), u.GetName(), errs.ToAggregate())
	}
	return nil
}

func testNodeClaim(t *testing.T) *karpv1.NodeClaim {
	t.Helper()
	nc, err := karpenter.NodeClaimOf(testClaim("default-abc"), testPool("default"), &karpenter.Batches{})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// manifest returns an object as the watch delivers it: spec is YAML, numbers are as the API server sends them.
func manifest(t testing.TB, k karpenter.CustomKind, name, spec string) client.Object {
	t.Helper()
	u := fromYAML(t, "apiVersion: "+k.GroupVersion().String()+"\nkind: "+k.Kind+"\nmetadata: {}\nspec: "+spec)
	u.SetName(name)
	u.SetUID(types.UID("uid-of-" + k.Kind + "-" + name))
	u.SetGeneration(1)
	u.SetCreationTimestamp(metav1.Time{Time: start})
	return karpenter.Decode(u, k.New)
}

func provisioner(t testing.TB, spec string) *legacy.Provisioner {
	return manifest(t, karpenter.Provisioners, "old", spec).(*legacy.Provisioner)
}

func nodeTemplate(t testing.TB, spec string) *legacy.AWSNodeTemplate {
	return manifest(t, karpenter.NodeTemplates, "t", spec).(*legacy.AWSNodeTemplate)
}

func inlined(t testing.TB, name, spec string) karpenter.Inline {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return karpenter.Inline{Name: name, Spec: raw}
}

func readInlined(t testing.TB, pools, classes []karpenter.Inline) ([]*karpv1.NodePool, []status.Object) {
	t.Helper()
	all, err := definitions()
	if err != nil {
		t.Fatal(err)
	}
	np, nc, errs := karpenter.ReadInline(all, nodeclass.Kind, pools, classes)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return np, nc
}
