package pending

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	listersv1 "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	csitrans "k8s.io/csi-translation-lib"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// volumeInfo determines what a pod's volumes require of its node.
type volumeInfo struct {
	claims  listersv1.PersistentVolumeClaimLister
	volumes listersv1.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	drivers storagelisters.CSIDriverLister
	inTree  csitrans.CSITranslator
	storage *storage.Capacities
}

func newVolumeInfo(f informers.SharedInformerFactory) volumeInfo {
	return volumeInfo{
		claims:  f.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: f.Core().V1().PersistentVolumes().Lister(),
		classes: f.Storage().V1().StorageClasses().Lister(),
		drivers: f.Storage().V1().CSIDrivers().Lister(),
		inTree:  csitrans.New(),
		storage: storage.New(f),
	}
}

func hasClaims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.CSI != nil {
			return true
		}
	}
	return false
}

// driverOf returns the CSI driver that attaches the volume, also where it replaces an in-tree plugin; "": none does.
func (v volumeInfo) driverOf(pv *corev1.PersistentVolume) string {
	if pv.Spec.CSI != nil {
		return pv.Spec.CSI.Driver
	}
	if plugin, err := v.inTree.GetInTreePluginNameFromSpec(pv, nil); err == nil {
		if driver, err := v.inTree.GetCSINameFromInTreeName(plugin); err == nil {
			return driver
		}
	}
	return ""
}

// provisions returns the CSI driver of a StorageClass's provisioner; "": its volumes need none. Many provisioners (static volumes, NFS,
// local paths) are no drivers: no CSINode would ever list them, and a pod would wait for that for ever.
func (v volumeInfo) provisions(provisioner string) string {
	if driver, err := v.inTree.GetCSINameFromInTreeName(provisioner); err == nil {
		return driver
	}
	if _, err := v.drivers.Get(provisioner); err != nil {
		return ""
	}
	return provisioner
}

// of returns what the volumes of the pod need. successor: the pod is yet to be created in the place of one that runs, and gets ephemeral
// volumes of its own.
func (v volumeInfo) of(pod *corev1.Pod, successor bool) capacity.VolumeInfo {
	out := capacity.VolumeInfo{Attach: map[string]int64{}}
	for i := range pod.Spec.Volumes {
		vol := &pod.Spec.Volumes[i]
		if vol.CSI != nil {
			out.Drivers = append(out.Drivers, vol.CSI.Driver) // inline volumes aren't attached: no limit
		} else if name := objects.ClaimName(pod, vol); vol.Ephemeral != nil && successor {
			v.renewed(&out, pod.Namespace, name, vol.Ephemeral.VolumeClaimTemplate)
		} else if name != "" {
			v.claim(&out, pod.Namespace, name, vol.Ephemeral != nil)
		}
		if out.Problem != "" {
			return out
		}
	}
	return out
}

func (v volumeInfo) claim(out *capacity.VolumeInfo, namespace, name string, ephemeral bool) {
	pvc, err := v.claims.PersistentVolumeClaims(namespace).Get(name)
	switch {
	case err != nil && ephemeral:
		out.Problem = fmt.Sprintf("waiting for the ephemeral volume controller to create claim %q", name)
		return
	case err != nil:
		out.Problem = fmt.Sprintf("persistentvolumeclaim %q not found", name)
		return
	case pvc.DeletionTimestamp != nil:
		out.Problem = fmt.Sprintf("persistentvolumeclaim %q is being deleted", name)
		return
	case pvc.Status.Phase == corev1.ClaimLost:
		out.Problem = fmt.Sprintf("persistentvolumeclaim %q has lost its volume", name)
		return
	}
	if pvc.Spec.VolumeName != "" {
		v.bound(out, pvc)
		return
	}
	v.unbound(out, pvc)
}

// renewed adds what the PersistentVolumeClaim of the next pod's ephemeral volume needs. The present claim of that name, if there is one, has the
// storage class that admission has filled in.
func (v volumeInfo) renewed(out *capacity.VolumeInfo, namespace, name string, template *corev1.PersistentVolumeClaimTemplate) {
	next := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if pvc, err := v.claims.PersistentVolumeClaims(namespace).Get(name); err == nil {
		next.Spec = pvc.Spec
	} else if template != nil {
		next.Spec = template.Spec
	}
	next.Spec.VolumeName = ""
	v.unbound(out, next)
}

func (v volumeInfo) bound(out *capacity.VolumeInfo, pvc *corev1.PersistentVolumeClaim) {
	pv, err := v.volumes.Get(pvc.Spec.VolumeName)
	if err != nil {
		out.Problem = fmt.Sprintf("persistentvolume %q of claim %q not found", pvc.Spec.VolumeName, pvc.Name)
		return
	}
	if driver := v.driverOf(pv); driver != "" {
		out.Attach[driver]++
	}
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return
	}
	var terms []capacity.Requirements
	for _, t := range pv.Spec.NodeAffinity.Required.NodeSelectorTerms {
		reqs := capacity.Requirements{}
		for _, e := range t.MatchExpressions {
			if e.Key == corev1.LabelHostname {
				// A volume that is local to one node can't be used on a new one.
				out.Problem = fmt.Sprintf("persistentvolume %q can only be used on the node it is on", pv.Name)
				return
			}
			r, err := capacity.NewRequirement(e.Key, capacity.Operator(e.Operator), e.Values...)
			if err != nil {
				out.Problem = fmt.Sprintf("persistentvolume %q: node affinity on %s: %v", pv.Name, e.Key, err)
				return
			}
			reqs = reqs.And(r)
		}
		terms = append(terms, reqs)
	}
	out.Topology = append(out.Topology, terms)
}

func (v volumeInfo) unbound(out *capacity.VolumeInfo, pvc *corev1.PersistentVolumeClaim) {
	if pvc.Spec.StorageClassName == nil || *pvc.Spec.StorageClassName == "" {
		out.Problem = fmt.Sprintf("persistentvolumeclaim %q is not bound and has no storage class", pvc.Name)
		return
	}
	class, err := v.classes.Get(*pvc.Spec.StorageClassName)
	if err != nil {
		out.Problem = fmt.Sprintf("storageclass %q of persistentvolumeclaim %q not found", *pvc.Spec.StorageClassName, pvc.Name)
		return
	}
	if class.VolumeBindingMode == nil || *class.VolumeBindingMode == storagev1.VolumeBindingImmediate {
		out.Problem = fmt.Sprintf("persistentvolumeclaim %q waits for its volume", pvc.Name)
		return
	}
	out.Unbound = true
	if driver := v.provisions(class.Provisioner); driver != "" {
		out.Attach[driver]++
	}
	if v.storage.Follows(class) {
		size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
		out.Attach[capacity.StorageOf(class.Name)] += size.Value()
	}
	var terms []capacity.Requirements
	for _, t := range class.AllowedTopologies {
		reqs := capacity.Requirements{}
		for _, e := range t.MatchLabelExpressions {
			reqs = reqs.And(capacity.ValueIn(e.Key, e.Values...))
		}
		terms = append(terms, reqs)
	}
	if len(terms) > 0 {
		out.Topology = append(out.Topology, terms)
	}
}
