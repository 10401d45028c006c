package manifest

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// claims adds the claims of a StatefulSet to one of its pods, as volumes, and to the set if they don't exist.
func (m *maker) claims(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	var volumes []corev1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		claim := t.DeepCopy()
		claim.Namespace, claim.Name = set.Namespace, fmt.Sprintf("%s-%s-%d", t.Name, set.Name, ordinal)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, set.Spec.Selector.MatchLabels)
		m.claim(claim)
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(own corev1.Volume) bool { return own.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

// ephemeralClaims creates the claims of a pod's generic ephemeral volumes.
func (m *maker) ephemeralClaims(pod *corev1.Pod) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		t := v.Ephemeral.VolumeClaimTemplate
		m.claim(&corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v), Labels: t.Labels, Annotations: t.Annotations,
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}},
			Spec: *t.Spec.DeepCopy(),
		})
	}
}

// claim adds a claim unless there is one with its name.
func (m *maker) claim(c *corev1.PersistentVolumeClaim) {
	if m.known == nil {
		m.known = map[string]bool{}
		for _, have := range All[*corev1.PersistentVolumeClaim](m.set) {
			m.known[have.Namespace+"/"+have.Name] = true
		}
	}
	key := c.Namespace + "/" + c.Name
	if m.known[key] {
		return
	}
	m.known[key] = true
	c.UID = uidOf("PersistentVolumeClaim", c.Namespace, c.Name)
	legacyscheme.Scheme.Default(c)
	m.set.add(c)
}

// completeClaims does what admission and the volume controller do to claims: claims without a class get the default class, and claims
// and volumes that name each other are bound.
func (m *maker) completeClaims() {
	class := m.defaultClass()
	volumes := map[string]*corev1.PersistentVolume{}
	for _, pv := range All[*corev1.PersistentVolume](m.set) {
		volumes[pv.Name] = pv
	}
	for _, c := range All[*corev1.PersistentVolumeClaim](m.set) {
		if _, old := c.Annotations[corev1.BetaStorageClassAnnotation]; !old && c.Spec.StorageClassName == nil && class != "" {
			c.Spec.StorageClassName = &class
		}
		pv := volumes[c.Spec.VolumeName]
		if pv == nil || pv.Spec.ClaimRef != nil && (pv.Spec.ClaimRef.Namespace != c.Namespace || pv.Spec.ClaimRef.Name != c.Name) {
			continue
		}
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, storagehelpers.AnnBindCompleted, "yes")
		c.Status.Phase, pv.Status.Phase = corev1.ClaimBound, corev1.VolumeBound
		pv.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID}
	}
	for _, c := range All[*corev1.PersistentVolumeClaim](m.set) {
		if c.Status.Phase == "" {
			c.Status.Phase = corev1.ClaimPending
		}
	}
	m.drivers()
}

// defaultClass returns the name of the newest class that is marked as the default, or "".
func (m *maker) defaultClass() string {
	var best *storagev1.StorageClass
	for _, c := range All[*storagev1.StorageClass](m.set) {
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		if best == nil || best.CreationTimestamp.Before(&c.CreationTimestamp) || best.CreationTimestamp.Equal(&c.CreationTimestamp) && c.Name < best.Name {
			best = c
		}
	}
	if best == nil {
		return ""
	}
	return best.Name
}

// drivers assumes that the CSI drivers named by storage classes are installed: manifests rarely contain them, and without its driver
// the volumes of a class wouldn't be counted.
func (m *maker) drivers() {
	have := map[string]bool{}
	for _, d := range All[*storagev1.CSIDriver](m.set) {
		have[d.Name] = true
	}
	for _, c := range All[*storagev1.StorageClass](m.set) {
		if csiName(c.Provisioner) && !have[c.Provisioner] {
			have[c.Provisioner] = true
			d := &storagev1.CSIDriver{}
			d.Name = c.Provisioner
			legacyscheme.Scheme.Default(d)
			m.set.add(d)
		}
	}
}
