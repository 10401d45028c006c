package simulate

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	csitrans "k8s.io/csi-translation-lib"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// volumeCounter counts CSI volumes against a node's attach limits, for the planner's proposals only: NodeVolumeLimits makes the final
// decision.
type volumeCounter struct {
	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	classes    storagelisters.StorageClassLister
	csiNodes   cache.Store
	translator csitrans.CSITranslator
}

func newVolumeCounter(factory informers.SharedInformerFactory) volumeCounter {
	return volumeCounter{
		claims:     factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes:    factory.Core().V1().PersistentVolumes().Lister(),
		classes:    factory.Storage().V1().StorageClasses().Lister(),
		csiNodes:   factory.Storage().V1().CSINodes().Informer().GetStore(),
		translator: csitrans.New(),
	}
}

// csiNode returns the node's CSINode or nil. A lister would spend more time on the text of its error than on the search.
func (v volumeCounter) csiNode(name string) *storagev1.CSINode {
	object, ok, err := v.csiNodes.GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return object.(*storagev1.CSINode)
}

// free returns how many volumes per driver can still be attached, and how much storage is left; drivers without a limit are left out.
func (v volumeCounter) free(node fwk.NodeInfo, csiNode *storagev1.CSINode, storage map[string]int64) map[string]int64 {
	free := map[string]int64{}
	maps.Copy(free, storage)
	if csiNode != nil {
		for _, d := range csiNode.Spec.Drivers {
			if d.Allocatable != nil && d.Allocatable.Count != nil {
				free[d.Name] = int64(*d.Allocatable.Count)
			}
		}
	}
	if len(free) == 0 {
		return nil
	}
	counted := sets.New[string]()
	for _, p := range node.GetPods() {
		pod := p.GetPod()
		for i := range pod.Spec.Volumes {
			name := objects.ClaimName(pod, &pod.Spec.Volumes[i])
			if name == "" || counted.Has(pod.Namespace+"/"+name) {
				continue
			}
			counted.Insert(pod.Namespace + "/" + name)
			driver := v.driver(pod.Namespace, name)
			if _, limited := free[driver]; limited {
				free[driver]--
			}
			if len(storage) > 0 {
				v.unprovided(free, pod.Namespace, name)
			}
		}
	}
	return free
}

// unprovided subtracts what the volume of a claim will take from storage, if there is no volume yet. Once it exists, the driver publishes
// a capacity without it.
func (v volumeCounter) unprovided(free map[string]int64, namespace, claim string) {
	pvc, err := v.claims.PersistentVolumeClaims(namespace).Get(claim)
	if err != nil || pvc.Spec.VolumeName != "" {
		return
	}
	key := capacity.StorageOf(storagehelpers.GetPersistentVolumeClaimClass(pvc))
	if _, limited := free[key]; limited {
		size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
		free[key] -= size.Value()
	}
}

// driver returns the name of the CSI driver that attaches a claim's volume, or "" if it isn't known.
func (v volumeCounter) driver(namespace, claim string) string {
	pvc, err := v.claims.PersistentVolumeClaims(namespace).Get(claim)
	if err != nil {
		return ""
	}
	if pv, err := v.volumes.Get(pvc.Spec.VolumeName); err == nil {
		if pv.Spec.CSI != nil {
			return pv.Spec.CSI.Driver
		}
		if name, err := v.translator.GetInTreePluginNameFromSpec(pv, nil); err == nil {
			return v.csiName(name)
		}
		return ""
	}
	if class, err := v.classes.Get(storagehelpers.GetPersistentVolumeClaimClass(pvc)); err == nil {
		return v.csiName(class.Provisioner)
	}
	return ""
}

// csiName returns the driver that an in-tree plugin was migrated to, or the name itself.
func (v volumeCounter) csiName(provisioner string) string {
	if name, err := v.translator.GetCSINameFromInTreeName(provisioner); err == nil {
		return name
	}
	return provisioner
}
