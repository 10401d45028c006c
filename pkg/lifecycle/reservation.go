package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// lapseAge is how old an instance has to be before it counts as having left its capacity reservation: what EC2 shows of new instances lags.
const lapseAge = 2 * time.Minute

// reservationEnd finds nodes whose capacity reservation is over. Their instances run on, and are billed, as on-demand ones; their claims and Nodes
// get the labels of on-demand ones, too.
type reservationEnd struct {
	nodes    *nodes
	claims   claims
	recorder recorder
	clock    clock.PassiveClock
}

func (r *reservationEnd) find(ctx context.Context, instances []capacity.Instance, claims claimSet) error {
	var errs []error
	for i := range instances {
		inst := &instances[i]
		claim := claims.byProvider[inst.ProviderID]
		if claim == nil || claim.DeletionTimestamp != nil || claim.Labels[karpv1.CapacityTypeLabelKey] != karpv1.CapacityTypeReserved ||
			inst.CapacityType != karpv1.CapacityTypeOnDemand || inst.State != capacity.InstanceRunning || r.clock.Since(inst.LaunchedAt) < lapseAge {
			continue
		}
		errs = append(errs, r.relabel(ctx, claim))
	}
	return utilerrors.NewAggregate(errs)
}

// relabel turns a reserved claim and its Node into on-demand ones. It writes the Node first: as long as the claim has the old label, find
// calls it again.
func (r *reservationEnd) relabel(ctx context.Context, claim *karpv1.NodeClaim) error {
	for _, n := range r.nodes.byProviderID(claim.Status.ProviderID) {
		_, err := r.nodes.patch(ctx, n.Name, n.UID, func(n *corev1.Node) { n.Labels = unreserved(n.Labels) })
		if err != nil && !gone(err) {
			return err
		}
	}
	want := claim.DeepCopy()
	want.Labels = unreserved(want.Labels)
	patch := client.MergeFromWithOptions(claim, client.MergeFromWithOptimisticLock{})
	if err := r.claims.Patch(ctx, want, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the labels of NodeClaim %s: %w", claim.Name, err)
	}
	id := claim.Labels[capacity.LabelReservationID]
	r.recorder.event(claim, nil, corev1.EventTypeNormal, reasonLapsed, "Check", "Reservation %s no longer covers the instance: it is an on-demand one now", id)
	klog.FromContext(ctx).Info("An instance has left its reservation", "nodeClaim", claim.Name, "reservation", id)
	return nil
}

// unreserved returns the labels of the same instance without its reservation.
func unreserved(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	maps.DeleteFunc(out, func(k, _ string) bool { return capacity.ReservationLabel(k) })
	out[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeOnDemand
	return out
}
