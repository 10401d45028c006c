package kubeapi

import (
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Over HTTP the server answers as it does in the process, errors included, and a watch shows each change when it happens.
func TestHandler(t *testing.T) {
	server := httptest.NewServer(New(scheme.Scheme, clock.RealClock{}).Handler())
	defer server.Close()
	kube := kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	nodes := kube.CoreV1().Nodes()
	if _, err := nodes.Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading what isn't there: %v", err)
	}
	w, err := nodes.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for _, name := range []string{"a", "b"} {
		if _, err := nodes.Create(t.Context(), node(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.Node).Name != name {
			t.Errorf("the watch shows %s %v", e.Type, e.Object)
		}
	}
	list, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Errorf("%d nodes: %v", len(list.Items), err)
	}
}
