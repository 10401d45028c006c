package pending

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

func TestDriversThatAPodWaitsFor(t *testing.T) {
	wait := storagev1.VolumeBindingWaitForFirstConsumer
	for _, c := range []struct {
		name        string
		provisioner string                         // of the claim's StorageClass, when it is unbound
		volume      *corev1.PersistentVolumeSource // the volume it is bound to
		counts      bool                           // the driver of new volumes publishes its capacity
		want        map[string]int64
	}{
		{"a CSI driver", "ebs.csi.aws.com", nil, false, map[string]int64{"ebs.csi.aws.com": 1}},
		{"an in-tree plugin that a driver took over from", "kubernetes.io/aws-ebs", nil, false, map[string]int64{"ebs.csi.aws.com": 1}},
		{"a provisioner that is no driver", "rancher.io/local-path", nil, false, map[string]int64{}},
		{"static volumes", "kubernetes.io/no-provisioner", nil, false, map[string]int64{}},
		{"a CSI volume", "", &corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "efs.csi.aws.com"}}, false,
			map[string]int64{"efs.csi.aws.com": 1}},
		{"an in-tree volume", "", &corev1.PersistentVolumeSource{AWSElasticBlockStore: &corev1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}}, false,
			map[string]int64{"ebs.csi.aws.com": 1}},
		{"a volume without driver", "", &corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{}}, false, map[string]int64{}},
		{"a driver whose capacity follows the node", "ebs.csi.aws.com", nil, true, map[string]int64{"ebs.csi.aws.com": 1, "storageclass/class": 10 << 30}},
		{"a volume of such a driver", "", &corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}}, true,
			map[string]int64{"ebs.csi.aws.com": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
			facts := newVolumeInfo(f)
			class := "class"
			pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "data"}}
			pvc.Spec.StorageClassName = &class
			pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")}
			if c.volume != nil {
				pvc.Spec.VolumeName = "pv"
				pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
				pv.Spec.PersistentVolumeSource = *c.volume
				add(t, f.Core().V1().PersistentVolumes().Informer().GetStore().Add(pv))
			}
			add(t, f.Core().V1().PersistentVolumeClaims().Informer().GetStore().Add(pvc))
			add(t, f.Storage().V1().StorageClasses().Informer().GetStore().Add(&storagev1.StorageClass{
				ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: c.provisioner, VolumeBindingMode: &wait}))
			add(t, f.Storage().V1().CSIDrivers().Informer().GetStore().Add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "ebs.csi.aws.com"},
				Spec: storagev1.CSIDriverSpec{StorageCapacity: &c.counts}}))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "p"}}
			pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			got := facts.of(pod, false)
			if got.Problem != "" {
				t.Fatal(got.Problem)
			}
			if diff := cmp.Diff(c.want, got.Attach); diff != "" {
				t.Errorf("drivers (-want +got):\n%s", diff)
			}
		})
	}
}

// The successor of a pod gets ephemeral volumes of its own, wherever it will be: the zone of today's volume doesn't bind it.
func TestSuccessorsGetEphemeralVolumesOfTheirOwn(t *testing.T) {
	wait, class := storagev1.VolumeBindingWaitForFirstConsumer, "class"
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	classes := NewClasses(f)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com"}
	pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "web-1-scratch"}}
	pvc.Spec.StorageClassName, pvc.Spec.VolumeName = &class, "pv"
	claims := f.Core().V1().PersistentVolumeClaims().Informer().GetStore()
	add(t, claims.Add(pvc))
	add(t, f.Core().V1().PersistentVolumes().Informer().GetStore().Add(pv))
	add(t, f.Storage().V1().StorageClasses().Informer().GetStore().Add(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &wait}))
	add(t, f.Storage().V1().CSIDrivers().Informer().GetStore().Add(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "ebs.csi.aws.com"}}))
	pod := func(name string) *corev1.Pod {
		p := unscheduled(0)
		p.Namespace, p.Name = "d", name
		p.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: *pvc.Spec.DeepCopy()}}}}}
		return p
	}
	_, successor, err := classes.Successor(pod("web-1"))
	if err != nil {
		t.Fatal(err)
	}
	next := pvc.DeepCopy()
	next.Name, next.Spec.VolumeName = "web-2-scratch", ""
	add(t, claims.Add(next))
	created, err := classes.Class(pod("web-2"))
	if err != nil {
		t.Fatal(err)
	}
	if successor.Key != created.Key {
		t.Errorf("the successor is expected with the terms %v, and comes with %v", successor.Terms, created.Terms)
	}
}

func add(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
