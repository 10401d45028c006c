package objects

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Ended reports whether the pod has finished and needs no capacity any more.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Controller returns the UID of the pod's controller, or "".
func Controller(pod *corev1.Pod) types.UID {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		return ref.UID
	}
	return ""
}

// DeploymentOf returns namespace/name of the Deployment whose ReplicaSet controls the pod, as their names and labels tell, or "".
func DeploymentOf(pod *corev1.Pod) string {
	ref, hash := metav1.GetControllerOfNoCopy(pod), pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	if ref == nil || ref.Kind != "ReplicaSet" || hash == "" {
		return ""
	}
	name, ok := strings.CutSuffix(ref.Name, "-"+hash)
	if !ok || name == "" {
		return ""
	}
	return pod.Namespace + "/" + name
}

// DaemonSetOf returns the DaemonSet that controls the pod, of any API group, or nil. (Which pods a drain leaves on a node is another
// question, which Karpenter decides by any owner of kind apps DaemonSet: lifecycle/pods.Daemon.)
func DaemonSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil && ref.Kind == "DaemonSet" {
		return ref
	}
	return nil
}

// OfDaemonSet reports whether a DaemonSet controls the pod: such a pod is created for its node and needs no other.
func OfDaemonSet(pod *corev1.Pod) bool { return DaemonSetOf(pod) != nil }

// DaemonSetKey returns namespace/name of the DaemonSet that controls the pod, or "".
func DaemonSetKey(pod *corev1.Pod) string {
	if ref := DaemonSetOf(pod); ref != nil {
		return pod.Namespace + "/" + ref.Name
	}
	return ""
}

// ClaimName returns the PersistentVolumeClaim of a pod's volume, or "". For an ephemeral volume it is the name that the ephemeral
// volume controller gives the claim.
func ClaimName(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

// Annotations with which a pod names the ProvisioningRequest whose capacity it uses. The second one is the Cluster Autoscaler's older name.
const (
	AnnotationConsumeRequest      = "autoscaling.x-k8s.io/consume-provisioning-request"
	AnnotationConsumeRequestOlder = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
)

// RequestOf returns the name of the ProvisioningRequest, of the pod's namespace, whose capacity the pod uses, or "".
func RequestOf(pod *corev1.Pod) string {
	if name, ok := pod.Annotations[AnnotationConsumeRequest]; ok {
		return name
	}
	return pod.Annotations[AnnotationConsumeRequestOlder]
}

// LabelPodGroup names a pod's group for scheduler-plugins' Coscheduling.
const LabelPodGroup = "scheduling.x-k8s.io/pod-group"

// DropClaims removes from a pod that doesn't exist yet the volumes that would have to exist.
func DropClaims(spec *corev1.PodSpec) {
	dropped := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(v corev1.Volume) bool {
		drop := v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		dropped[v.Name] = drop
		return drop
	})
	for _, containers := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range containers {
			containers[i].VolumeMounts = slices.DeleteFunc(containers[i].VolumeMounts, func(m corev1.VolumeMount) bool { return dropped[m.Name] })
		}
	}
}
