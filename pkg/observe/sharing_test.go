package observe

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// TestSharePods has two handlers that share a goroutine, which is why they can write to the same slice, and one that came late.
func TestSharePods(t *testing.T) {
	ctx := t.Context()
	kube := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}})
	f := SharePods(informers.NewSharedInformerFactory(kube, 0))
	pods := f.Core().V1().Pods().Informer()
	var got []string
	step := make(chan struct{}, 100)
	record := func(who string) cache.ResourceEventHandler {
		note := func(what string, o any) { got = append(got, who+" "+what+" "+o.(*corev1.Pod).Name) }
		return cache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(o any, initial bool) {
				note(map[bool]string{true: "found", false: "added"}[initial], o)
				step <- struct{}{}
			},
			UpdateFunc: func(_, o any) { note("updated", o); step <- struct{}{} },
			DeleteFunc: func(o any) { note("deleted", o); step <- struct{}{} },
		}
	}
	add := func(h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
		t.Helper()
		r, err := pods.AddEventHandler(h)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	expect := func(when string, want ...string) {
		t.Helper()
		for range want {
			<-step
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: got %q, want %q", when, got, want)
		}
		got = nil
	}
	first, second := add(record("1")), add(record("2"))
	if first.HasSynced() || second.HasSynced() {
		t.Error("handlers have seen everything before the informer runs")
	}
	f.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), first.HasSynced, second.HasSynced) {
		t.Fatal("the handlers have never seen everything")
	}
	expect("at the start", "1 found old", "2 found old")

	client := kube.CoreV1().Pods("default")
	pod, err := client.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "new"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect("after a pod was created", "1 added new", "2 added new")
	pod.Spec.NodeName = "node"
	if _, err = client.Update(ctx, pod, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("after it was bound", "1 updated new", "2 updated new")
	if err := client.Delete(ctx, "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("after the other was deleted", "1 deleted old", "2 deleted old")

	// It finds what is there, as with any informer, and can leave.
	late := add(record("late"))
	expect("after a handler was added", "late found new")
	if err := pods.RemoveEventHandler(late); err != nil {
		t.Error("the late handler couldn't be removed:", err)
	}
	if err := pods.RemoveEventHandler(first); err == nil {
		t.Error("a handler was removed with all others")
	}
	if err := client.Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("after the late handler has left", "1 deleted new", "2 deleted new")
	if again := f.Core().V1().Pods(); again.Informer() != pods {
		t.Error("the factory has two informers of pods")
	}
	if left, err := f.Core().V1().Pods().Lister().List(labels.Everything()); err != nil || len(left) > 0 {
		t.Errorf("the lister has %d pods and error %v, want none", len(left), err)
	}
}

// A registration is synced when all handlers that share have seen what was there.
func TestSharedHandlersAreSyncedTogether(t *testing.T) {
	kube := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old"}})
	f := SharePods(informers.NewSharedInformerFactory(kube, 0))
	pods := f.Core().V1().Pods().Informer()
	seen, release := make(chan struct{}), make(chan struct{})
	quick, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { close(seen); <-release }}); err != nil {
		t.Fatal(err)
	}
	f.StartWithContext(t.Context())
	<-seen
	if quick.HasSynced() {
		t.Error("the first handler's registration is synced while the second still gets what was there")
	}
	close(release)
	if !cache.WaitForCacheSync(t.Context().Done(), quick.HasSynced) {
		t.Error("the first handler's registration is never synced")
	}
}
