package kubeapi

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/utils/ptr"
)

// budgeted creates three ready pods of a ReplicaSet, and a budget that lets one of them be unavailable, and runs Kubernetes' disruption
// controller. The functions evict a pod, make one that takes its place and is ready or not, and read the budget.
func budgeted(t *testing.T, kube kubernetes.Interface) (evict func(string) error, replace func(name string, ready bool), read func() *policyv1.PodDisruptionBudget) {
	rs, err := kube.AppsV1().ReplicaSets("d").Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](3)}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := kube.CoreV1().Pods("d")
	replace = func(name string, ready bool) {
		owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: ptr.To(true)}
		p, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}, OwnerReferences: []metav1.OwnerReference{owner}}, Spec: corev1.PodSpec{NodeName: "n"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}}
		if ready {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // of virtual time
		synctest.Wait()
	}
	one := intstr.FromInt32(1)
	if _, err := kube.PolicyV1().PodDisruptionBudgets("d").Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	handlers := utilruntime.ErrorHandlers // the second one slows down after errors, by a clock that isn't the bubble's
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	f := informers.NewSharedInformerFactory(kube, 0)
	ctx, cancel := context.WithCancel(context.Background())
	apps, core := f.Apps().V1(), f.Core().V1()
	c := disruption.NewDisruptionController(ctx, core.Pods(), f.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(),
		apps.StatefulSets(), kube, meta.NewDefaultRESTMapper(nil), nil, nil)
	f.Start(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		f.Shutdown()
		<-time.After(time.Minute) // for goroutines that check for their end now and then
	})
	for i := range 3 {
		replace(fmt.Sprint(i), true)
	}
	evict = func(name string) error {
		err := kube.PolicyV1().Evictions("d").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name},
			DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}})
		return err
	}
	read = func() *policyv1.PodDisruptionBudget {
		b, err := kube.PolicyV1().PodDisruptionBudgets("d").Get(t.Context(), "b", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return evict, replace, read
}

// Kubernetes' disruption controller writes the status, and evictions are taken from it.
func TestEvictionsAreTakenFromTheStatus(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Server, _ *Client, kube kubernetes.Interface) {
		evict, replace, read := budgeted(t, kube)
		want := func(when string, allowed, healthy int32) {
			t.Helper()
			synctest.Wait()
			is := read().Status
			if is.DisruptionsAllowed != allowed || is.CurrentHealthy != healthy || is.DesiredHealthy != 2 || is.ExpectedPods != 3 || is.ObservedGeneration != 1 {
				t.Errorf("%s: %+v", when, is)
			}
		}
		want("at first", 1, 3)
		if err := evict("0"); err != nil {
			t.Errorf("the first: %v", err)
		}
		if is := read().Status; is.DisruptionsAllowed != 0 {
			t.Errorf("at once: %+v", is)
		}
		if err := evict("1"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the second: %v", err)
		}
		<-time.After(time.Second) // of virtual time
		want("once the controller has seen it", 0, 2)
		replace("3", false)
		if err := evict("1"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the second, its replacement isn't ready: %v", err)
		}
		if err := evict("3"); err != nil {
			t.Errorf("one that isn't ready, the others are: %v", err)
		}
		replace("4", true)
		want("replaced", 1, 3)
		b := read()
		b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(0))
		if _, err := kube.PolicyV1().PodDisruptionBudgets("d").Update(t.Context(), b, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := evict("1"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("of a budget that has just changed: %v", err)
		}
	})
}
