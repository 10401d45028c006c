package v1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopy returns a copy that shares nothing with the request.
func (r *ProvisioningRequest) DeepCopy() *ProvisioningRequest {
	out := *r
	out.ObjectMeta = *r.ObjectMeta.DeepCopy()
	out.Spec.PodSets = slices.Clone(r.Spec.PodSets)
	out.Spec.Parameters = maps.Clone(r.Spec.Parameters)
	out.Status.Conditions = make([]metav1.Condition, 0, len(r.Status.Conditions))
	for i := range r.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *r.Status.Conditions[i].DeepCopy())
	}
	out.Status.ProvisioningClassDetails = maps.Clone(r.Status.ProvisioningClassDetails)
	return &out
}

// DeepCopyObject is DeepCopy for runtime.Object.
func (r *ProvisioningRequest) DeepCopyObject() runtime.Object { return r.DeepCopy() }

// DeepCopyObject returns a copy that shares nothing with the list.
func (l *ProvisioningRequestList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = make([]ProvisioningRequest, 0, len(l.Items))
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return &out
}
