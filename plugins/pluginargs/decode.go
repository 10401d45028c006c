// Package pluginargs reads the arguments that a scheduler profile gives to our plugins.
package pluginargs

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// GroupVersion of all arguments.
const GroupVersion = "config.dovetail.sh/v1"

// Decode reads a plugin's arguments into args, which may be nil in the profile: then nothing is read. Unknown fields, fields
// named twice and fields in another case are errors, as upstream has it for its own arguments.
func Decode(obj runtime.Object, kind string, args any) error {
	switch o := obj.(type) {
	case nil:
		return nil
	case *runtime.Unknown:
		if len(o.Raw) == 0 {
			return nil
		}
		data, err := yaml.YAMLToJSONStrict(o.Raw)
		if err != nil {
			return err
		}
		strict, err := json.UnmarshalStrict(data, args)
		if err != nil {
			return err
		}
		return errors.Join(strict...)
	}
	return fmt.Errorf("want %s %s, have %T", GroupVersion, kind, obj)
}

// ValidateKind checks apiVersion and kind; arguments that name neither are of the right kind.
func ValidateKind(tm metav1.TypeMeta, kind string) field.ErrorList {
	want := GroupVersion + "/" + kind
	if have := tm.APIVersion + "/" + tm.Kind; have != "/" && have != want {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), have, []string{want})}
	}
	return nil
}
