package lifecycle

import (
	"context"
	"fmt"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// leaseEvery is the age at which a Node without kubelet gets its Lease, and how often that is renewed. The node lifecycle controller
	// gives a Node that never posted 60 s from creation or from the last renewal, so a kubelet that registers within leaseEvery costs no
	// write at all.
	leaseEvery = 15 * time.Second
	// leaseDuration is what the kubelet itself writes by default.
	leaseDuration = 40 * time.Second
)

// managedBy labels the Leases that we have made. A kubelet keeps the label when it takes its Lease over. The admission policy of
// manifests/admission lets us write no others.
const managedBy, managedByUs = "app.kubernetes.io/managed-by", "dovetail-scheduler"

// leases keeps the Leases of Nodes without kubelet.
type leases struct {
	kube                kubernetes.Interface
	registrationTimeout time.Duration
	written             memory[types.UID, *coordv1.Lease] // each Lease as this process wrote it last, by the UID of its Node
}

// reconcile stands in for a kubelet that is still booting: as long as the Lease is renewed, the node lifecycle controller doesn't declare
// the Node unreachable and delete its pods. It stops when the kubelet posts its status or renews the Lease itself, and at the registration
// deadline.
func (s *leases) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil {
		return 0, nil
	}
	if objects.Posted(node) || l.now.After(launchedAt(l.claim).Add(s.registrationTimeout)) {
		s.written.forget(node.UID)
		return 0, nil
	}
	if due := node.CreationTimestamp.Add(leaseEvery); l.now.Before(due) {
		return due.Sub(l.now), nil
	}
	held, ok := s.written.get(node.UID)
	if !ok {
		found, err := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return s.create(ctx, node, l.now)
		} else if err != nil {
			return 0, fmt.Errorf("reading the Lease of Node %s: %w", node.Name, err)
		}
		held = found
	}
	if held.Spec.RenewTime != nil {
		// The renewal isn't due yet, whether this process or the kubelet renewed the Lease last.
		if wait := held.Spec.RenewTime.Add(leaseEvery).Sub(l.now); wait > 0 {
			return wait, nil
		}
	}
	next := held.DeepCopy()
	next.Spec.RenewTime = &metav1.MicroTime{Time: l.now}
	renewed, err := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Update(ctx, next, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		s.written.forget(node.UID) // the kubelet has renewed it, or the Lease was deleted with an earlier Node: check again
		return time.Second, nil
	} else if apierrors.IsForbidden(err) && held.Labels[managedBy] != managedByUs {
		s.written.forget(node.UID)
		return leaseEvery, nil // the kubelet made it, and will renew it
	} else if err != nil {
		return 0, fmt.Errorf("renewing the Lease of Node %s: %w", node.Name, err)
	}
	s.written.put(node.UID, renewed)
	return leaseEvery, nil
}

func (s *leases) create(ctx context.Context, node *corev1.Node, now time.Time) (time.Duration, error) {
	seconds := int32(leaseDuration / time.Second)
	lease, err := s.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, Namespace: corev1.NamespaceNodeLease, Labels: map[string]string{managedBy: managedByUs},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordv1.LeaseSpec{
			HolderIdentity: &node.Name, LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: now},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return leaseEvery, nil // the kubelet was faster
	} else if err != nil {
		return 0, fmt.Errorf("creating the Lease of Node %s: %w", node.Name, err)
	}
	s.written.put(node.UID, lease)
	return leaseEvery, nil
}
