package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// leaseSeconds is the lease duration of real kubelets.
const leaseSeconds = 40

// renewLease renews the node's Lease, usually in one call; it takes over a Lease that already exists.
func (k *Kubelets) renewLease(ctx context.Context, n *node, now time.Time) error {
	spec := coordinationv1.LeaseSpec{HolderIdentity: &n.name, LeaseDurationSeconds: ptr.To[int32](leaseSeconds), RenewTime: ptr.To(metav1.NewMicroTime(now))}
	body, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return fmt.Errorf("renewing the lease of %s: %w", n.name, err)
	}
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renew := func() error {
		_, err := leases.Patch(ctx, n.name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
	create := func() error {
		_, err := leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: n.name, Namespace: corev1.NamespaceNodeLease, OwnerReferences: []metav1.OwnerReference{n.owner()}}, Spec: spec,
		}, metav1.CreateOptions{})
		return err
	}
	// The more likely call first: an existing Node has a Lease, a new one has none.
	if n.adopted || !n.leaseDue.IsZero() {
		if err = renew(); apierrors.IsNotFound(err) {
			err = create()
		}
	} else if err = create(); apierrors.IsAlreadyExists(err) {
		err = renew()
	}
	if err != nil {
		return fmt.Errorf("renewing the lease of %s: %w", n.name, err)
	}
	return nil
}

func (n *node) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.identity()}
}
