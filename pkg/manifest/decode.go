package manifest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// decode returns the object of a document, with defaults. ignored are fields that its kind doesn't have. fresh objects are validated
// as the API server validates new objects; the others come from an API server.
func (k *kind) decode(d *document, definitions karpenter.Definitions, fresh bool) (o client.Object, ignored []string, errs []error) {
	if k.custom != nil {
		return k.decodeCustom(d, definitions, fresh)
	}
	gvk := schema.FromAPIVersionAndKind(d.head.APIVersion, d.head.Kind)
	made, err := legacyscheme.Scheme.New(gvk)
	if err != nil {
		return nil, nil, []error{d.errorf("%w", err)}
	}
	o = made.(client.Object)
	empty := func() client.Object { // only for errors: made is filled by then
		o, _ := legacyscheme.Scheme.New(gvk)
		return o.(client.Object)
	}
	if ignored, errs = unmarshal(d, o, empty, fresh); len(errs) > 0 {
		return nil, nil, errs
	}
	d.complete(o)
	legacyscheme.Scheme.Default(o)
	if !fresh {
		return o, ignored, nil
	}
	if job, ok := o.(*batchv1.Job); ok {
		selectPods(job)
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(o.DeepCopyObject(), schema.GroupVersion{Group: gvk.Group, Version: runtime.APIVersionInternal})
	if err != nil {
		return nil, nil, []error{d.errorf("%w", err)}
	}
	return o, ignored, d.refused(validate(internal))
}

// decodeCustom is decode for kinds defined by CustomResourceDefinitions.
func (k *kind) decodeCustom(d *document, definitions karpenter.Definitions, fresh bool) (o client.Object, ignored []string, errs []error) {
	o = k.custom()
	if !fresh { // a cluster has validated it and set its defaults
		if _, errs = unmarshal(d, o, k.custom, fresh); len(errs) > 0 {
			return nil, nil, errs
		}
		d.complete(o)
		return o, nil, nil
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(d.raw); err != nil {
		return nil, nil, []error{d.errorf("%w", err)}
	}
	if ignored, errs = unmarshal(d, k.custom(), k.custom, fresh); len(errs) > 0 {
		return nil, nil, errs
	}
	if errs = d.refused(definitions.Admit(u)); len(errs) > 0 {
		return nil, ignored, errs
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, nil, []error{d.errorf("%w", err)}
	}
	d.complete(o)
	return o, ignored, nil
}

// unmarshal fills o. If strictly, it names the fields that the type doesn't have, which takes longer. fresh returns an empty object of the same type.
func unmarshal(d *document, o client.Object, fresh func() client.Object, strictly bool) (ignored []string, errs []error) {
	var strict []error
	var err error
	if strictly {
		strict, err = kjson.UnmarshalStrict(d.raw, o)
	} else {
		err = kjson.UnmarshalCaseSensitivePreserveInts(d.raw, o)
	}
	for _, s := range strict {
		ignored = append(ignored, s.Error())
	}
	if err == nil {
		return ignored, nil
	}
	var object map[string]any
	if json.Unmarshal(d.raw, &object) == nil {
		for _, bad := range karpenter.BadFields(object, fresh) {
			errs = append(errs, d.errorf("%s", plain(bad)))
		}
	}
	if len(errs) == 0 {
		errs = []error{d.errorf("%s", plain(strings.TrimPrefix(err.Error(), "json: ")))}
	}
	return nil, errs
}

// goTypes matches encoding/json's message about a value of the wrong type.
var goTypes = regexp.MustCompile(`cannot unmarshal (\w+)(?: \S+)? into Go (?:struct field \S+|value) of type (\S+)`)

// plain rewrites such a message without the names of Go's fields: "spec.replicas: a string where int32 is expected".
func plain(message string) string {
	return goTypes.ReplaceAllString(message, "a $1 where $2 is expected")
}

func (d *document) refused(list field.ErrorList) (errs []error) {
	for _, err := range list {
		errs = append(errs, d.errorf("%w", err))
	}
	return errs
}

// complete sets what the API server would have set: namespace, a generated name and a UID.
func (d *document) complete(o client.Object) {
	o.SetNamespace(d.head.Metadata.Namespace)
	o.SetName(d.head.Metadata.Name)
	if o.GetUID() == "" {
		o.SetUID(uidOf(d.head.Kind, o.GetNamespace(), o.GetName()))
	}
}

// space is the UUID namespace of offline objects, so that their UIDs differ from all others.
var space = uuid.MustParse("6f1c9d0e-3a54-4b0e-9d57-d0fe7a11d0fe")

// uidOf always returns the same UID for the same object.
func uidOf(kind, namespace, name string) types.UID {
	return types.UID(uuid.NewSHA1(space, fmt.Appendf(nil, "%s/%s/%s", kind, namespace, name)).String())
}

// selectPods gives a job the selector and labels that the API server generates (k8s.io/kubernetes pkg/registry/batch/job,
// generateSelector).
func selectPods(job *batchv1.Job) {
	if job.Spec.ManualSelector != nil && *job.Spec.ManualSelector {
		return
	}
	labels := &job.Spec.Template.Labels
	if *labels == nil {
		*labels = map[string]string{}
	}
	for _, prefix := range []string{"", "batch.kubernetes.io/"} {
		(*labels)[prefix+"job-name"], (*labels)[prefix+"controller-uid"] = job.Name, string(job.UID)
	}
	if job.Spec.Selector == nil {
		job.Spec.Selector = &metav1.LabelSelector{}
	}
	if job.Spec.Selector.MatchLabels == nil {
		job.Spec.Selector.MatchLabels = map[string]string{}
	}
	job.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] = string(job.UID)
}
