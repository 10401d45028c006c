package kubeapi

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	podResource  = schema.GroupResource{Resource: "pods"}
	nodeResource = schema.GroupResource{Resource: "nodes"}
)

// podGrace returns a pod's grace period in seconds. A pod that isn't running has none.
func podGrace(p *object, o *metav1.DeleteOptions) int64 {
	node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(p.Object, "status", "phase")
	if node == "" || phase == string(corev1.PodSucceeded) || phase == string(corev1.PodFailed) {
		return 0
	}
	if o.GracePeriodSeconds != nil {
		return *o.GracePeriodSeconds
	}
	grace, _, _ := unstructured.NestedInt64(p.Object, "spec", "terminationGracePeriodSeconds")
	return grace
}

// bind does what the binding subresource does.
func (s *Server) bind(t *table, pod *object, b *corev1.Binding) error {
	if b.UID != "" && b.UID != pod.GetUID() {
		return apierrors.NewConflict(podResource, pod.GetName(), fmt.Errorf("Precondition failed: UID"))
	}
	if pod.GetDeletionTimestamp() != nil {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.GetName(), fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.GetName()))
	}
	if node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName"); node != "" {
		return apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, pod.GetName(), fmt.Errorf("pod %s is already assigned to node %q", pod.GetName(), node))
	}
	next := pod.DeepCopy()
	if err := unstructured.SetNestedField(next.Object, b.Target.Name, "spec", "nodeName"); err != nil {
		return apierrors.NewInternalError(err)
	}
	var typed corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next.Object, &typed); err != nil {
		return apierrors.NewInternalError(err)
	}
	set := false
	for i := range typed.Status.Conditions {
		if c := &typed.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			*c, set = scheduled(s.clock.Now()), true
		}
	}
	if !set {
		typed.Status.Conditions = append(typed.Status.Conditions, scheduled(s.clock.Now()))
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	next.Object["status"] = raw["status"]
	s.commit(t, pod, next)
	return nil
}

func scheduled(now time.Time) corev1.PodCondition {
	return corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now)}
}

// evict does what the eviction subresource does: it deletes the pod unless a disruption budget forbids it.
func (s *Server) evict(t *table, pod *object, e *policyv1.Eviction) error {
	o := e.DeleteOptions
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	if err := s.permit(t, pod, len(o.DryRun) > 0); err != nil {
		return err
	}
	if err := preconditions(t, pod, o); err != nil {
		return err
	}
	if len(o.DryRun) == 0 {
		marked, err := s.disrupt(t, pod)
		if err != nil {
			return err
		}
		pod = marked
	}
	_, err := s.remove(t, pod, o)
	return err
}

// disrupt writes the DisruptionTarget condition on the pod, as the eviction subresource does before it deletes the pod.
func (s *Server) disrupt(t *table, pod *object) (*object, error) {
	next := pod.DeepCopy()
	var typed corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(next.Object, &typed); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	typed.Status.Conditions = slices.DeleteFunc(typed.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
	typed.Status.Conditions = append(typed.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: metav1.NewTime(s.clock.Now()),
	})
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	next.Object["status"] = raw["status"]
	return s.commit(t, pod, next), nil
}

func readyPod(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
