package chaos

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// selectedNode is the annotation in which the scheduler writes the node for which a volume is to be provisioned.
const selectedNode = "volume.kubernetes.io/selected-node"

const volumeDriver = "ebs.csi.aws.com"

func storageClass(name, driver string) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
	}
}

// VolumeClaim returns a PersistentVolumeClaim of a StorageClass.
func VolumeClaim(name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}},
		},
		Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending},
	}
}

// Mounting returns a change to a pod template that mounts a PersistentVolumeClaim.
func Mounting(claim string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
}

// provide provisions the volume of a PersistentVolumeClaim in the zone of its selected node, which it reads from the given node label,
// and binds it, as the provisioner and the volume controller do.
func (s *Stage) provide(c *corev1.PersistentVolumeClaim, driver, label string) {
	node, err := s.kube.CoreV1().Nodes().Get(s.ctx, c.Annotations[selectedNode], metav1.GetOptions{})
	if err != nil {
		return
	}
	name := "pvc-" + string(c.UID)
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: c.Spec.Resources.Requests, AccessModes: c.Spec.AccessModes, StorageClassName: *c.Spec.StorageClassName,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: "vol-" + string(c.UID)}},
			ClaimRef:               &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
				Key: label, Operator: corev1.NodeSelectorOpIn, Values: []string{node.Labels[label]}}}}}}},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		},
		Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound},
	}
	if _, err := s.kube.CoreV1().PersistentVolumes().Create(s.ctx, pv, metav1.CreateOptions{}); err != nil {
		return
	}
	c = c.DeepCopy()
	c.Spec.VolumeName = name
	c.Annotations["pv.kubernetes.io/bind-completed"], c.Annotations["pv.kubernetes.io/bound-by-controller"] = "yes", "yes"
	if c, err = s.kube.CoreV1().PersistentVolumeClaims(c.Namespace).Update(s.ctx, c, metav1.UpdateOptions{}); err != nil {
		return
	}
	c.Status.Phase, c.Status.AccessModes, c.Status.Capacity = corev1.ClaimBound, c.Spec.AccessModes, c.Spec.Resources.Requests
	_, _ = s.kube.CoreV1().PersistentVolumeClaims(c.Namespace).UpdateStatus(s.ctx, c, metav1.UpdateOptions{})
}
