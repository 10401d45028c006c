package draw

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Driver is the CSI driver of all volumes, ZoneKey the label in their node affinity.
const (
	Driver  = "ebs.csi.aws.com"
	ZoneKey = "topology.kubernetes.io/zone"
)

// StorageClass is the class of volumes that are provisioned once their pod has a selected node.
const StorageClass = "late"

var zones = []string{"us-west-2a", "us-west-2b", "us-west-2c"}

var priorityClasses = []string{"low", "high", "higher"}

// extras adds objects that workloads refer to, and DaemonSets.
func (g *generator) extras() {
	for i, name := range priorityClasses {
		g.w.Setup = append(g.w.Setup, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: int32(i*1000 - 500)})
	}
	g.w.Setup = append(g.w.Setup, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: StorageClass}, Provisioner: Driver, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	n := g.between(0, 2)
	for i := range n {
		g.w.Setup = append(g.w.Setup, g.daemon(fmt.Sprintf("daemon-%d", i)))
	}
	g.tell("%d daemons", n)
}

func (g *generator) daemon(name string) client.Object {
	pod := g.pod(name)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: pick(g, resource.MustParse("20m"), resource.MustParse("100m"), resource.MustParse("250m")), corev1.ResourceMemory: resource.MustParse("64Mi"),
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if g.maybe(0.5) {
		pod.Spec.Tolerations = nil
	}
	if g.maybe(0.3) {
		pod.Spec.NodeSelector = map[string]string{"example.com/pool": "general"}
	}
	return &appsv1.DaemonSet{ObjectMeta: g.meta(name), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: name}}, Template: *pod,
	}}
}

// stateful returns a StatefulSet with a volume per pod, which is provisioned once the pod has a selected node.
func (g *generator) stateful(name string, pod *corev1.PodTemplateSpec, replicas int32) client.Object {
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	policy := appsv1.ParallelPodManagement
	if g.maybe(0.3) {
		policy = appsv1.OrderedReadyPodManagement
	}
	return &appsv1.StatefulSet{ObjectMeta: g.meta(name), Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, PodManagementPolicy: policy, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{AppLabel: name}}, Template: *pod,
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: claimSpec(ptr.To(StorageClass), "")}},
	}}
}

// zonalVolume returns an existing volume in one zone with a PersistentVolumeClaim, and mounts it in the pod.
func (g *generator) zonalVolume(name string, p *corev1.PodSpec) []client.Object {
	zone := pick(g, zones...)
	volume := g.w.Namespace + "-" + name
	p.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}}}
	pv := Volume(volume, zone, &corev1.ObjectReference{Namespace: g.w.Namespace, Name: name})
	return []client.Object{pv, &corev1.PersistentVolumeClaim{ObjectMeta: g.meta(name), Spec: claimSpec(ptr.To(""), volume)}}
}

func claimSpec(class *string, volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: class, VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// Volume returns a PersistentVolume in a zone, bound to a PersistentVolumeClaim.
func Volume(name, zone string, claim *corev1.ObjectReference) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, ClaimRef: claim,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: Driver, VolumeHandle: name}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: ZoneKey, Operator: corev1.NodeSelectorOpIn, Values: []string{zone}}}}}}},
		},
	}
}
