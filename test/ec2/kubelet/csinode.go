package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// announceDrivers writes the node's CSINode. The real kubelet creates it without drivers some seconds earlier, which to readers is the
// same as no CSINode.
func (k *Kubelets) announceDrivers(ctx context.Context, n *node) error {
	list := []storagev1.CSINodeDriver{}
	for _, name := range slices.Sorted(maps.Keys(k.cfg.Drivers)) {
		limit := k.cfg.Drivers[name]
		if limit == 0 {
			limit = int32(max(1, n.machine.Type.MaxEBSAttachments-2)) // the root volume and the first interface are attached
		}
		list = append(list, storagev1.CSINodeDriver{
			Name: name, NodeID: n.machine.ID, TopologyKeys: []string{"topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"},
			Allocatable: &storagev1.VolumeNodeResources{Count: ptr.To(limit)},
		})
	}
	csi := k.client.StorageV1().CSINodes()
	mine := &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: n.name, OwnerReferences: []metav1.OwnerReference{n.owner()}}, Spec: storagev1.CSINodeSpec{Drivers: list},
	}
	_, err := csi.Create(ctx, mine, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		// An earlier node of that name left it: its drivers' node IDs can't be changed, and its owner is being deleted or gone.
		if err = csi.Delete(ctx, n.name, metav1.DeleteOptions{}); err == nil || apierrors.IsNotFound(err) {
			_, err = csi.Create(ctx, mine, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("writing CSINode %s: %w", n.name, err)
	}
	return nil
}
