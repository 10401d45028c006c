package kubeapi

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Admission sees every object before it is created, and before anything is filled in: it may change it, or refuse it. It must not call
// the server.
type Admission func(*Call, *unstructured.Unstructured) error

// Admit adds to what admits new objects. They are asked in the order in which they were added.
func (s *Server) Admit(a Admission) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admit = append(s.admit, a)
}

// Denied is how the API server answers when a webhook has said no.
func Denied(webhook, why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "admission webhook \"" + webhook + "\" denied the request: " + why,
	}}
}
