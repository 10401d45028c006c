package karpenter

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// definition is a CustomResourceDefinition compiled into what an API server uses to admit objects.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

func newDefinition(crd *apiextensionsv1.CustomResourceDefinition) (*definition, error) {
	internal := &apiextensions.CustomResourceValidation{}
	err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(crd.Spec.Versions[0].Schema, internal, nil)
	if err != nil {
		return nil, fmt.Errorf("converting the schema of %s: %w", crd.Name, err)
	}
	d := &definition{}
	if d.structural, err = schema.NewStructural(internal.OpenAPIV3Schema); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
	}
	if d.schema, _, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema); err != nil {
		return nil, fmt.Errorf("reading the schema of %s: %w", crd.Name, err)
	}
	d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d, nil
}

// Definitions holds CustomResourceDefinitions by kind. Compiling the rules of one takes up to a fraction of a second, so it is done when
// the first object of its kind needs it: in most clusters the API server does this work and we never need it.
type Definitions map[string]func() (*definition, error)

// NewDefinitions returns the definitions of a cloud's node classes and of Karpenter's kinds, as the cloud ships them.
func NewDefinitions(crds []*apiextensionsv1.CustomResourceDefinition) Definitions {
	out := Definitions{}
	for _, crd := range crds {
		out[crd.Spec.Names.Kind] = sync.OnceValues(func() (*definition, error) { return newDefinition(crd) })
	}
	return out
}

// Admit does to a new object that has not come through an API server what the definitions would have done to it: it fills in defaults
// for fields that are not set and returns the violations of the schema and its rules, each error with the path of its field. A kind
// without a definition passes unchanged.
func (all Definitions) Admit(u *unstructured.Unstructured) field.ErrorList { return all.admit(u, nil) }

// admit is Admit for an update when old isn't nil: old is the object before the change.
func (all Definitions) admit(u, old *unstructured.Unstructured) field.ErrorList {
	compile := all[u.GetKind()]
	if compile == nil {
		return nil
	}
	d, err := compile()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return d.admit(u, old)
}

// unknownFields returns the paths of fields that the object's definition doesn't have, and removes them, as an API server does.
func (all Definitions) unknownFields(u *unstructured.Unstructured) []string {
	compile := all[u.GetKind()]
	if compile == nil {
		return nil
	}
	d, err := compile()
	if err != nil {
		return nil // Admit reports the error
	}
	return pruning.PruneWithOptions(u.Object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
}

func (d *definition) admit(u, old *unstructured.Unstructured) field.ErrorList {
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, d.structural)
	defaulting.Default(u.Object, d.structural)
	errs := validation.ValidateCustomResource(nil, u.Object, d.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, u.Object)...)
	var before any
	if old != nil {
		before = old.Object
	}
	ruled, _ := d.rules.Validate(context.Background(), nil, d.structural, u.Object, before, celconfig.RuntimeCELCostBudget)
	return append(errs, ruled...)
}
