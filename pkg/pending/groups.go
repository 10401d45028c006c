package pending

import corev1 "k8s.io/api/core/v1"

// Group identifies the PodGroup that a pod says it belongs to.
type Group struct {
	Namespace, Name string
	// InTree: the group is of scheduling.k8s.io (spec.schedulingGroup), otherwise of scheduling.x-k8s.io.
	InTree bool
}

func (g Group) String() string { return g.Namespace + "/" + g.Name }

// LabelGroup names a pod's group for scheduler-plugins' Coscheduling.
const LabelGroup = "scheduling.x-k8s.io/pod-group"

// GroupOf returns the pod's group; a zero Group: the pod has none.
func GroupOf(pod *corev1.Pod) Group {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return Group{pod.Namespace, *g.PodGroupName, true}
	}
	if name := pod.Labels[LabelGroup]; name != "" {
		return Group{pod.Namespace, name, false}
	}
	return Group{}
}
