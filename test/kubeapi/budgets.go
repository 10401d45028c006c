package kubeapi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var budgetResource = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}

// permit returns why disruption budgets forbid the pod's eviction, or nil. A permitted eviction is taken from the status of the budget that
// covers the pod, as kube-apiserver does. The status is what the disruption controller has written there; where none has written any, the
// budget is counted here.
func (s *Server) permit(pods *table, pod *object, dryRun bool) error {
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if phase != string(corev1.PodRunning) && phase != string(corev1.PodUnknown) || pod.GetDeletionTimestamp() != nil {
		return nil
	}
	budgets := s.table(budgetResource)
	var covering []*policyv1.PodDisruptionBudget
	for _, o := range budgets.sorted() {
		if o.GetNamespace() != pod.GetNamespace() {
			continue
		}
		b := &policyv1.PodDisruptionBudget{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, b); err != nil {
			return apierrors.NewInternalError(err)
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if selector.Matches(labels.Set(pod.GetLabels())) {
			covering = append(covering, b)
		}
	}
	switch {
	case len(covering) == 0:
		return nil
	case len(covering) > 1:
		return apierrors.NewInternalError(fmt.Errorf("This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."))
	case covering[0].Status.ObservedGeneration == 0:
		return count(pods, covering[0])
	}
	b := covering[0]
	if expendable, err := unready(pod, b); err != nil || expendable {
		return err
	}
	if err := decrement(b, pod.GetName(), metav1.NewTime(s.clock.Now())); err != nil || dryRun {
		return err
	}
	return s.writeStatus(budgets, b)
}

// unready reports whether the pod isn't ready, so that it may be evicted without the budget's permission.
func unready(pod *object, b *policyv1.PodDisruptionBudget) (bool, error) {
	var p corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(pod.Object, &p); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if readyPod(&p) {
		return false, nil
	}
	policy := b.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow || b.Status.CurrentHealthy >= b.Status.DesiredHealthy && b.Status.DesiredHealthy > 0, nil
}

// decrement takes a pod's eviction from the budget's status, or returns why it may not be evicted.
func decrement(b *policyv1.PodDisruptionBudget, pod string, now metav1.Time) error {
	if b.Status.ObservedGeneration < b.Generation {
		return violated(fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name), 10)
	}
	if b.Status.DisruptionsAllowed < 0 {
		return apierrors.NewForbidden(budgetResource, b.Name, fmt.Errorf("pdb disruptions allowed is negative"))
	}
	if b.Status.DisruptionsAllowed == 0 {
		return violated(fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy), 0)
	}
	b.Status.DisruptionsAllowed--
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod] = now // the disruption controller doesn't count it as healthy from now on
	return nil
}

func violated(why string, retryAfter int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}

func (s *Server) writeStatus(t *table, b *policyv1.PodDisruptionBudget) error {
	current, err := t.get(b.Namespace, b.Name)
	if err != nil {
		return err
	}
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	next := current.DeepCopy()
	next.Object["status"] = raw["status"]
	s.commit(t, current, next)
	return nil
}

// count returns an error unless one more of the pods that the budget covers may be unavailable.
func count(pods *table, b *policyv1.PodDisruptionBudget) error {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	total, healthy := 0, 0
	for _, o := range pods.sorted() {
		if o.GetNamespace() != b.Namespace || !selector.Matches(labels.Set(o.GetLabels())) {
			continue
		}
		total++
		var p corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
			return apierrors.NewInternalError(err)
		}
		if p.DeletionTimestamp == nil && readyPod(&p) {
			healthy++
		}
	}
	wanted := 0
	switch {
	case b.Spec.MinAvailable != nil:
		wanted, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MinAvailable, total, true)
	case b.Spec.MaxUnavailable != nil:
		var most int
		most, err = intstr.GetScaledValueFromIntOrPercent(b.Spec.MaxUnavailable, total, true)
		wanted = total - most
	}
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if healthy-1 < wanted {
		return apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	}
	return nil
}
