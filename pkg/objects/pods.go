package objects

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ended says that the pod runs no more and needs no room.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Controller is the UID of the pod's controller, or "".
func Controller(pod *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// DaemonSetOf is the DaemonSet that controls the pod, of whatever API group, or nil. (What a drain leaves on a node is another question,
// which Karpenter answers by any owner of the API's own kind: lifecycle/pods.Daemon.)
func DaemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.Kind == "DaemonSet" {
		return ref
	}
	return nil
}

// OfDaemonSet says that a DaemonSet controls the pod: it comes with its node and needs no other.
func OfDaemonSet(pod *corev1.Pod) bool { return DaemonSetOf(pod) != nil }

// DaemonSetKey is namespace/name of the DaemonSet that controls the pod, or "".
func DaemonSetKey(pod *corev1.Pod) string {
	if ref := DaemonSetOf(pod); ref != nil {
		return pod.Namespace + "/" + ref.Name
	}
	return ""
}

// ClaimName is the PersistentVolumeClaim of a pod's volume, or "". That of an ephemeral volume is named as its controller names it.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}
