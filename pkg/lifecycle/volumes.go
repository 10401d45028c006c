package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// volumeDetachment waits until the volumes of the drained pods are detached, so that the pods' replacements can attach them at once. The
// deadline ends the wait.
type volumeDetachment struct {
	pods      *boundPods
	attached  storagelisters.VolumeAttachmentLister
	volumes   corelisters.PersistentVolumeLister
	volClaims corelisters.PersistentVolumeClaimLister
	recorder  recorder
}

func (d *volumeDetachment) wait(_ context.Context, e *ending) (time.Duration, error) {
	pending, err := d.pendingAttachments(e.node.Name, e.now)
	if err != nil {
		return 0, err
	}
	if len(pending) == 0 {
		if e.claim != nil {
			e.conditions().SetTrue(karpv1.ConditionTypeVolumesDetached)
		}
		return 0, nil
	}
	if e.expired() {
		if e.claim != nil {
			e.conditions().SetFalse(karpv1.ConditionTypeVolumesDetached, "TerminationGracePeriodElapsed", strings.Join(pending, ", "))
		}
		return 0, nil
	}
	if e.claim != nil {
		e.conditions().SetUnknownWithReason(karpv1.ConditionTypeVolumesDetached, reasonAwaitingVolumes, strings.Join(pending, ", "))
	}
	d.recorder.event(nil, e.node, corev1.EventTypeNormal, reasonAwaitingVolumes, "Drain", "waiting for volumes to be detached: %s", strings.Join(pending, ", "))
	return drainPoll, nil
}

// pendingAttachments returns the persistent volumes attached to a node that other pods may be waiting for. Volumes of pods that stay to the
// end (DaemonSet pods that tolerate the taint, static pods) never detach; volumes that several nodes may attach delay no pod.
func (d *volumeDetachment) pendingAttachments(node string, now time.Time) ([]string, error) {
	all, err := d.attached.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing VolumeAttachments: %w", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(a *storagev1.VolumeAttachment) bool {
		return a.Spec.NodeName != node || a.Spec.Source.PersistentVolumeName == nil
	})
	if len(all) == 0 {
		return nil, nil
	}
	bound, err := d.pods.cached(node)
	if err != nil {
		return nil, err
	}
	staying := sets.New[string]()
	for _, p := range bound {
		if pods.Drainable(p, now) {
			continue
		}
		for i := range p.Spec.Volumes {
			if name := objects.ClaimName(p, &p.Spec.Volumes[i]); name != "" {
				if pvc, err := d.volClaims.PersistentVolumeClaims(p.Namespace).Get(name); err == nil {
					staying.Insert(pvc.Spec.VolumeName)
				}
			}
		}
	}
	var out []string
	for _, a := range all {
		volume := *a.Spec.Source.PersistentVolumeName
		if staying.Has(volume) || d.sharedVolume(volume) {
			continue
		}
		out = append(out, volume)
	}
	slices.Sort(out)
	return out, nil
}

// sharedVolume reports whether several nodes may have the volume attached.
func (d *volumeDetachment) sharedVolume(name string) bool {
	pv, err := d.volumes.Get(name)
	return err == nil && (slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(pv.Spec.AccessModes, corev1.ReadOnlyMany))
}
