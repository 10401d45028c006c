package kubeapi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Visit shows every object of a resource, in the order of names, as all of them are at one moment. Nothing may be changed or kept,
// and the server not be called.
func (s *Server) Visit(group, resource string, f func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.table(schema.GroupResource{Group: group, Resource: resource}).sorted() {
		f(o)
	}
}
