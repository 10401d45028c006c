package kubeapi

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Visit calls f with every object of a resource in the order of their names, all as of one moment. f must not change or keep an
// object, or call the server.
func (s *Server) Visit(group, resource string, f func(*unstructured.Unstructured)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.table(schema.GroupResource{Group: group, Resource: resource}).sorted() {
		f(o)
	}
}
