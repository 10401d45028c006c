package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
)

// DefaultPriorityClass returns the class of pods that name none, or nil. If several are marked as default, the lowest counts.
func DefaultPriorityClass(classes []*schedulingv1.PriorityClass) (out *schedulingv1.PriorityClass) {
	for _, c := range classes {
		if c.GlobalDefault && (out == nil || c.Value < out.Value) {
			out = c
		}
	}
	return out
}

// SetPriority sets the pod's priority to that of class, its own or the default one; nil: there is neither, and the priority is 0.
func SetPriority(pod *corev1.Pod, class *schedulingv1.PriorityClass) {
	if pod.Spec.Priority != nil {
		return
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		pod.Spec.PriorityClassName, value = class.Name, class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	pod.Spec.Priority = &value
	if pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = &policy
	}
}

// SetRuntimeClass adds the overhead of the pod's runtime class, and its node selector and tolerations.
func SetRuntimeClass(pod *corev1.Pod, class *nodev1.RuntimeClass) {
	if class.Overhead != nil && pod.Spec.Overhead == nil {
		pod.Spec.Overhead = class.Overhead.PodFixed
	}
	if class.Scheduling == nil {
		return
	}
	for key, value := range class.Scheduling.NodeSelector {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return have == t }) {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
		}
	}
}
