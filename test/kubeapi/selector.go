package kubeapi

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// selector selects the objects of a list or watch.
type selector struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func selectorOf(namespace string, o *metav1.ListOptions) (selector, error) {
	s := selector{namespace: namespace, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if o.LabelSelector != "" {
		if s.labels, err = labels.Parse(o.LabelSelector); err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
	}
	if o.FieldSelector != "" {
		if s.fields, err = fields.ParseSelector(o.FieldSelector); err != nil {
			return s, apierrors.NewBadRequest(err.Error())
		}
	}
	return s, nil
}

func (s selector) matches(o *object) bool {
	if s.namespace != "" && s.namespace != o.GetNamespace() || !s.labels.Empty() && !s.labels.Matches(labels.Set(o.GetLabels())) {
		return false
	}
	if s.fields.Empty() {
		return true
	}
	set := fields.Set{}
	for _, r := range s.fields.Requirements() {
		value, ok, _ := unstructured.NestedFieldNoCopy(o.Object, strings.Split(r.Field, ".")...)
		if ok {
			set[r.Field] = fmt.Sprint(value)
		}
	}
	return s.fields.Matches(set)
}
