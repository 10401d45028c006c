package karpenter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Decode converts an object as the API server sent it. An object that does not fit its type keeps its metadata, and its status if that
// part fits, and carries the reason in an annotation that Malformed returns. Decoding a whole list at once would instead fail for
// ever: one bad object (an expireAfter of 9999999h passes the CRD's pattern, but overflows time.Duration) would make all others
// unreadable.
//
// fresh returns an empty object of the type.
func Decode(u *unstructured.Unstructured, fresh func() client.Object) client.Object {
	out := fresh()
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
	if err == nil {
		return out
	}
	reason := strings.Join(BadFields(u.Object, fresh), "; ")
	if reason == "" {
		reason = err.Error()
	}
	whole := u.Object
	for _, parts := range [][]string{{"status"}, nil} {
		kept := map[string]any{"apiVersion": whole["apiVersion"], "kind": whole["kind"], "metadata": whole["metadata"]}
		for _, part := range parts {
			kept[part] = whole[part]
		}
		out = fresh()
		if runtime.DefaultUnstructuredConverter.FromUnstructured(kept, out) == nil {
			break
		}
	}
	annotations := maps.Clone(out.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[objects.AnnotationMalformed] = reason
	out.SetAnnotations(annotations)
	return out
}

// Malformed returns why the object could not be read, naming fields; empty if it could be.
func Malformed(o client.Object) string { return o.GetAnnotations()[objects.AnnotationMalformed] }

// ReasonMalformed is the reason of conditions about objects that can't be read.
const ReasonMalformed = "Malformed"

// SameIntent reports whether a and b are versions of one object with the same spec: same UID, same generation, both being deleted or neither, both
// readable or unreadable for the same reason. Then everything that was derived from a's spec also holds for b.
func SameIntent(a, b client.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration() && a.GetDeletionTimestamp().IsZero() == b.GetDeletionTimestamp().IsZero() &&
		Malformed(a) == Malformed(b)
}

// BadFields names the fields of an object that don't fit its type, each with its reason. It tries each leaf alone, because only some
// decoding errors name the field: those of numbers do, those of quantities and durations don't.
func BadFields(object map[string]any, fresh func() client.Object) []string {
	var bad []string
	for _, part := range slices.Sorted(maps.Keys(object)) {
		eachLeaf(object[part], part, func(path string, alone any) {
			try := map[string]any{part: alone}
			err := runtime.DefaultUnstructuredConverter.FromUnstructured(try, fresh())
			if err == nil {
				return
			}
			// The converter is fast, but encoding/json explains errors better.
			if raw, broken := json.Marshal(try); broken == nil {
				if better := json.Unmarshal(raw, fresh()); better != nil {
					err = better
				}
			}
			bad = append(bad, fmt.Sprintf("%s: %s", path, strings.TrimPrefix(err.Error(), "json: ")))
		}, func(v any) any { return v })
	}
	return bad
}

// eachLeaf calls f for every leaf below v with its path and with a tree that holds only this leaf. wrap puts a subtree into its place
// in that tree.
func eachLeaf(v any, path string, f func(path string, alone any), wrap func(any) any) {
	switch t := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(t)) {
			eachLeaf(t[key], path+"."+key, f, func(sub any) any { return wrap(map[string]any{key: sub}) })
		}
	case []any:
		for i := range t {
			eachLeaf(t[i], fmt.Sprintf("%s[%d]", path, i), f, func(sub any) any { return wrap([]any{sub}) })
		}
	case nil:
	default:
		f(path, wrap(v))
	}
}
