package kubeapi

import (
	"reflect"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// kindsOf returns the kinds of the scheme by resource.
func kindsOf(scheme *runtime.Scheme) map[schema.GroupVersionResource]schema.GroupVersionKind {
	out := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for kind := range scheme.AllKnownTypes() {
		if kind.Version == runtime.APIVersionInternal || strings.HasSuffix(kind.Kind, "List") {
			continue
		}
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		if strings.HasSuffix(kind.Kind, "ay") { // UnsafeGuessKindToResource would turn -ay into -aies
			resource.Resource = strings.ToLower(kind.Kind) + "s"
		}
		out[resource] = kind
	}
	return out
}

// generation returns n for resources that count generations, otherwise 0.
func generation(r schema.GroupResource, n int64) int64 {
	if r.Group == "" && r.Resource != "pods" {
		return 0
	}
	return n
}

// prepareCreate changes a new object as the strategy of its resource does.
func prepareCreate(r schema.GroupResource, o *object) {
	switch {
	case r == podResource:
		o.Object["status"] = map[string]any{"phase": "Pending"}
		if _, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "terminationGracePeriodSeconds"); !ok {
			_ = unstructured.SetNestedField(o.Object, int64(30), "spec", "terminationGracePeriodSeconds")
		}
	case r.Group == "batch" && r.Resource == "jobs":
		selectOwnPods(o)
		delete(o.Object, "status")
	case strings.Contains(r.Group, "karpenter"), r.Group == "apps", r.Group == "batch", r == budgetResource:
		delete(o.Object, "status")
	}
}

// selectOwnPods gives a Job's pods labels that no other Job's pods have, and makes the Job select them.
func selectOwnPods(o *object) {
	if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); manual {
		return
	}
	own, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
	if own == nil {
		own = map[string]string{}
	}
	for key, value := range map[string]string{
		"job-name": o.GetName(), batchv1.JobNameLabel: o.GetName(), "controller-uid": string(o.GetUID()), batchv1.ControllerUidLabel: string(o.GetUID()),
	} {
		if _, told := own[key]; !told {
			own[key] = value
		}
	}
	_ = unstructured.SetNestedStringMap(o.Object, own, "spec", "template", "metadata", "labels")
	_ = unstructured.SetNestedField(o.Object, string(o.GetUID()), "spec", "selector", "matchLabels", batchv1.ControllerUidLabel)
}

// validateChange refuses changes to fields that a cluster relies on never to change.
func validateChange(r schema.GroupResource, current, next *object) error {
	frozen := func(path ...string) error {
		was, had, _ := unstructured.NestedString(current.Object, path...)
		is, _, _ := unstructured.NestedString(next.Object, path...)
		if had && was != "" && was != is {
			return invalid(r, current, strings.Join(path, ".")+": Forbidden: may not be changed once it is set")
		}
		return nil
	}
	switch {
	case r == nodeResource:
		return frozen("spec", "providerID")
	case r == podResource:
		return frozen("spec", "nodeName")
	case r.Group == "karpenter.sh" && r.Resource == "nodeclaims":
		if !equalField(current, next, "spec") {
			return invalid(r, current, "spec: Invalid value: spec is immutable")
		}
	}
	return nil
}

func invalid(r schema.GroupResource, o *object, why string) error {
	return apierrors.NewInvalid(schema.GroupKind{Group: r.Group, Kind: o.GetKind()}, o.GetName(), field.ErrorList{{Type: field.ErrorTypeForbidden, Field: "object", Detail: why}})
}

func equal(a, b *object) bool { return reflect.DeepEqual(a.Object, b.Object) }

func equalField(a, b *object, name string) bool {
	return reflect.DeepEqual(a.Object[name], b.Object[name])
}
