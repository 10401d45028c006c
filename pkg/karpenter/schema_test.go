package karpenter

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// definition is a CustomResourceDefinition as an API server uses it.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// definitions are those that are shipped, by kind.
var definitions = sync.OnceValue(func() map[string]*definition {
	out := map[string]*definition{}
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	for _, crd := range CRDs() {
		version := crd.Spec.Versions[0]
		internal := &apiextensions.CustomResourceValidation{}
		must(apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(version.Schema, internal, nil))
		d := &definition{}
		var err error
		d.structural, err = schema.NewStructural(internal.OpenAPIV3Schema)
		must(err)
		d.schema, _, err = validation.NewSchemaValidator(internal.OpenAPIV3Schema)
		must(err)
		d.rules = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
		out[crd.Spec.Names.Kind] = d
	}
	return out
})

// acceptable is what an API server would say of a part of the object ("" is all of it): nothing, or why it refuses it. Kinds
// without definition pass.
func acceptable(o any, part string) error {
	raw, err := json.Marshal(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return err
	}
	d := definitions()[u.GetKind()]
	if d == nil {
		return nil
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, d.structural)
	defaulting.Default(u.Object, d.structural)
	errs := validation.ValidateCustomResource(nil, u.Object, d.schema)
	ruled, _ := d.rules.Validate(context.Background(), nil, d.structural, u.Object, nil, celconfig.RuntimeCELCostBudget)
	errs = slices.DeleteFunc(append(errs, ruled...), func(err *field.Error) bool { return !strings.HasPrefix(err.Field, part) })
	if len(errs) > 0 {
		return fmt.Errorf("the API server refuses %s %s: %w", u.GetKind(), u.GetName(), errs.ToAggregate())
	}
	return nil
}
