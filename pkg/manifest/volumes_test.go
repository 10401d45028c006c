package manifest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

const classOfDisks = `
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: disks, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: files}, provisioner: example.com/nfs}
---
`

// claimsOf describes each claim of the set: its name, class, phase and volume.
func claimsOf(s *Set) []string {
	var out []string
	for _, c := range All[*corev1.PersistentVolumeClaim](s) {
		class := "none"
		if c.Spec.StorageClassName != nil {
			class = *c.Spec.StorageClassName
		}
		out = append(out, fmt.Sprintf("%s/%s %s %s %s", c.Namespace, c.Name, class, c.Status.Phase, c.Spec.VolumeName))
	}
	return out
}

func TestClaims(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
		volumes    []string // the claims used by the first pod
	}{
		{name: "a StatefulSet makes one for each pod", want: []string{"default/data-db-0 disks Pending ", "default/data-db-1 disks Pending "}, volumes: []string{"data-db-0", ""}, text: classOfDisks + `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 2
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c}], volumes: [{name: tmp, emptyDir: {}}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`},
		{name: "one that is there stays as it is", want: []string{"default/data-db-0 files Pending "}, volumes: []string{"data-db-0"}, text: classOfDisks + `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-db-0}, spec: {storageClassName: files, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`},
		{name: "an ephemeral volume makes one", want: []string{"default/p-scratch disks Pending "}, volumes: []string{""}, text: classOfDisks + `
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: c}]
  volumes: [{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}}]
`},
		{name: "claim and volume that name each other are bound", want: []string{"default/a none Bound v"}, text: `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {volumeName: v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: ebs.csi.aws.com, volumeHandle: v}}}
`},
		{name: "but not if the volume is another's", want: []string{"default/a none Pending v"}, text: `
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {volumeName: v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {claimRef: {namespace: other, name: a}, capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], csi: {driver: ebs.csi.aws.com, volumeHandle: v}}}
`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := read(t, tc.text)
			pods := s.Pods()
			if diff := cmp.Diff(tc.want, claimsOf(s)); diff != "" {
				t.Errorf("claims (-want +got):\n%s", diff)
			}
			if tc.volumes == nil {
				return
			}
			var used []string
			for _, v := range pods[0].Spec.Volumes {
				name := ""
				if v.PersistentVolumeClaim != nil {
					name = v.PersistentVolumeClaim.ClaimName
				}
				used = append(used, name)
			}
			if diff := cmp.Diff(tc.volumes, used); diff != "" {
				t.Errorf("claims of the pod's volumes (-want +got):\n%s", diff)
			}
		})
	}
}

// Without its driver, the volumes of a class would count against no limit.
func TestDriversOfClassesAreTakenForInstalled(t *testing.T) {
	s := read(t, classOfDisks+`
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: more}, provisioner: ebs.csi.aws.com}
`)
	s.Pods()
	var got []string
	for _, d := range All[*storagev1.CSIDriver](s) {
		got = append(got, d.Name)
	}
	if diff := cmp.Diff([]string{"ebs.csi.aws.com"}, got); diff != "" {
		t.Errorf("drivers (-want +got):\n%s", diff)
	}
}
