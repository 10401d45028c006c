package kubeapi

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Admission is called for every object before it is created and before any field is defaulted. It may change the object or refuse it.
// It must not call the server.
type Admission func(*Call, *unstructured.Unstructured) error

// Admit adds an Admission. They are called in the order in which they were added.
func (s *Server) Admit(a Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = append(s.admit, a)
}

// Denied returns the API server's error for a request that a webhook has denied.
func Denied(webhook, why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "admission webhook \"" + webhook + "\" denied the request: " + why,
	}}
}
