package capacity

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// perPodLabels are labels whose values differ between pods that are otherwise identical: pods of a StatefulSet, of an indexed Job, and of Jobs with
// one pod each. A Job's name and UID are in two labels each, the current one and the older one without a prefix.
var perPodLabels = []string{
	"statefulset.kubernetes.io/pod-name",
	"apps.kubernetes.io/pod-index",
	"batch.kubernetes.io/job-completion-index",
	"batch.kubernetes.io/job-name", "job-name",
	"batch.kubernetes.io/controller-uid", "controller-uid",
}

// siblingLabels are those of perPodLabels in which pods of one controller differ.
var siblingLabels = perPodLabels[:3]

// OfOnePod reports whether no two pods of a controller are of the class, because it has a label in which such pods differ.
func (c *Class) OfOnePod() bool {
	return slices.ContainsFunc(siblingLabels, func(label string) bool {
		_, has := c.Labels[label]
		return has
	})
}

// LabelsNamed is a set of perPodLabels: those that selectors in pods' constraints name. Pods with different values of such a label are not of one
// class, because a selector may tell them apart. The zero value is empty.
type LabelsNamed uint8

// Or returns the labels that are in one of the sets or the other.
func (n LabelsNamed) Or(other LabelsNamed) LabelsNamed { return n | other }

// leavesOut reports whether the label differs from pod to pod and is not in the set.
func (n LabelsNamed) leavesOut(key string) bool {
	bit := labelNamed(key)
	return bit != 0 && n&bit == 0
}

// labelNamed returns the set with the label alone, which is empty for most labels.
func labelNamed(key string) LabelsNamed {
	for i, label := range perPodLabels {
		if label == key {
			return 1 << i
		}
	}
	return 0
}

// NamedBy returns the labels that the pod's affinity and topology spread constraints name, required or preferred.
func NamedBy(pod *corev1.Pod) LabelsNamed {
	var out LabelsNamed
	for i := range pod.Spec.TopologySpreadConstraints {
		t := &pod.Spec.TopologySpreadConstraints[i]
		out |= namedBySelector(t.LabelSelector) | namedIn(t.MatchLabelKeys)
	}
	a := pod.Spec.Affinity
	if a == nil {
		return out
	}
	if a.PodAffinity != nil {
		out |= namedByTerms(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if a.PodAntiAffinity != nil {
		out |= namedByTerms(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	return out
}

func namedByTerms(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) (out LabelsNamed) {
	for i := range required {
		out |= namedByTerm(&required[i])
	}
	for i := range preferred {
		out |= namedByTerm(&preferred[i].PodAffinityTerm)
	}
	return out
}

func namedByTerm(t *corev1.PodAffinityTerm) LabelsNamed {
	return namedBySelector(t.LabelSelector) | namedIn(t.MatchLabelKeys) | namedIn(t.MismatchLabelKeys)
}

func namedBySelector(s *metav1.LabelSelector) (out LabelsNamed) {
	if s == nil {
		return 0
	}
	for key := range s.MatchLabels {
		out |= labelNamed(key)
	}
	for i := range s.MatchExpressions {
		out |= labelNamed(s.MatchExpressions[i].Key)
	}
	return out
}

func namedIn(keys []string) (out LabelsNamed) {
	for _, key := range keys {
		out |= labelNamed(key)
	}
	return out
}
