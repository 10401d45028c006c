package kubeapi

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
)

// The pods of a Node are listed while they are created there, bound to it, changed and deleted.
func TestPodsOfANode(t *testing.T) {
	pods := kubernetes.NewForConfigOrDie(New(scheme.Scheme, clock.RealClock{}).Client().Config()).CoreV1().Pods("d")
	want := func(when, node, names string) {
		t.Helper()
		list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range list.Items {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != names {
			t.Errorf("%s: pods of node %q are %v, want %s", when, node, got, names)
		}
	}
	for i, node := range []string{"a", "", "b", "a"} {
		if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i)}, Spec: corev1.PodSpec{NodeName: node}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want("created", "a", "p0 p3")
	want("created", "", "p1")
	want("created", "c", "")
	if err := pods.Bind(t.Context(), &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p1"}, Target: corev1.ObjectReference{Name: "b"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want("bound", "b", "p1 p2")
	want("bound", "", "")
	p, err := pods.Get(t.Context(), "p2", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want("changed", "b", "p1 p2")
	none := int64(0)
	if err := pods.Delete(t.Context(), "p2", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	want("deleted", "b", "p1")
	want("deleted", "a", "p0 p3")
}
