package capacity

import corev1 "k8s.io/api/core/v1"

// RefOf returns the reference to a pod.
func RefOf(pod *corev1.Pod) PodRef {
	return PodRef{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name}
}
