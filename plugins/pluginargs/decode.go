// Package pluginargs reads the arguments that a scheduler profile gives to our plugins.
package pluginargs

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// GroupVersion is the apiVersion of all arguments (docs/deprecation.md). Former is what it was called before the first release; it is
// understood as well.
const (
	GroupVersion = "config.dovetail.sh/v1alpha1"
	Former       = "config.dovetail.sh/v1"
)

// Decode reads a plugin's arguments into args. A profile may have none; then args stays as it is. Unknown fields, duplicate fields and
// fields in another case are errors, as they are for upstream's own arguments.
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
			return naming(data, args, err)
		}
		return errors.Join(strict...)
	}
	return fmt.Errorf("want %s %s, have %T", GroupVersion, kind, obj)
}

// Of returns a plugin's arguments in a profile's configuration, or nil.
func Of(config []schedulerapi.PluginConfig, plugin string) runtime.Object {
	for _, c := range config {
		if c.Name == plugin {
			return c.Args
		}
	}
	return nil
}

// naming adds to err the name of the field that it is about, because some errors, such as that for an invalid duration, don't contain it.
func naming(data []byte, args any, err error) error {
	fields := map[string]stdjson.RawMessage{}
	if stdjson.Unmarshal(data, &fields) != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		alone, _ := stdjson.Marshal(map[string]stdjson.RawMessage{name: fields[name]})
		fresh := reflect.New(reflect.TypeOf(args).Elem()).Interface()
		if _, err := json.UnmarshalStrict(alone, fresh); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return err
}

// ValidateKind checks apiVersion and kind. Arguments may leave out both.
func ValidateKind(tm metav1.TypeMeta, kind string) field.ErrorList {
	want := GroupVersion + "/" + kind
	if have := tm.APIVersion + "/" + tm.Kind; have != "/" && have != want && have != Former+"/"+kind {
		return field.ErrorList{field.NotSupported(field.NewPath("apiVersion"), have, []string{want})}
	}
	return nil
}
