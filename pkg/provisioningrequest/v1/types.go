// Package v1 holds the types of the API autoscaling.x-k8s.io/v1 that ask for capacity: ProvisioningRequest, which the Cluster Autoscaler answers, too.
// They are written down here because the module of the Cluster Autoscaler's API needs another version of Kubernetes. The definition is in manifests/crds.
//
// The package validates nothing.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Classes of ProvisioningRequests that are answered here.
const (
	// ClassCheckCapacity asks whether the nodes that are there have capacity for all pods.
	ClassCheckCapacity = "check-capacity.autoscaling.x-k8s.io"
	// ClassBestEffortAtomic asks for nodes for all pods or for none.
	ClassBestEffortAtomic = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
)

// Types of conditions.
const (
	// Accepted: it is understood, and capacity is looked for.
	Accepted = "Accepted"
	// Provisioned: there is capacity for all of its pods.
	Provisioned = "Provisioned"
	// Failed: it gets no capacity any more.
	Failed = "Failed"
	// BookingExpired: its capacity isn't kept for its pods any more.
	BookingExpired = "BookingExpired"
	// CapacityRevoked: its capacity has ended before its pods were there.
	CapacityRevoked = "CapacityRevoked"
)

// Keys of Spec.Parameters.
const (
	// ParameterValidUntil is for how many seconds after the creation of a request capacity is looked for.
	ParameterValidUntil = "ValidUntilSeconds"
	// ParameterNoRetry "true": a request of the class check-capacity fails if there is no capacity for it now.
	ParameterNoRetry = "noRetry"
	// ParameterPartial asks for an answer about some of the pods. It isn't supported.
	ParameterPartial = "partialCapacityCheck"
)

// ProvisioningRequest asks for capacity for pods that don't exist yet.
type ProvisioningRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   Spec   `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// ProvisioningRequestList is a list of ProvisioningRequests.
type ProvisioningRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`

	Items []ProvisioningRequest `json:"items"`
}

// Spec says what is asked for. It never changes.
type Spec struct {
	PodSets               []PodSet          `json:"podSets"`
	ProvisioningClassName string            `json:"provisioningClassName"`
	Parameters            map[string]string `json:"parameters,omitempty"`
}

// PodSet is a number of pods that are alike.
type PodSet struct {
	PodTemplateRef Reference `json:"podTemplateRef"`
	Count          int32     `json:"count"`
}

// Reference names an object of the same namespace.
type Reference struct {
	Name string `json:"name,omitempty"`
}

// Status says what has become of the request.
type Status struct {
	Conditions               []metav1.Condition `json:"conditions,omitempty"`
	ProvisioningClassDetails map[string]string  `json:"provisioningClassDetails,omitempty"`
}
