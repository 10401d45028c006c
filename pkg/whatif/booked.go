package whatif

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Booking is where a pod without a node has its reservation.
type Booking struct {
	Claim *karpv1.NodeClaim
	// Node is the claim's; nil: it doesn't exist yet.
	Node *corev1.Node
}

// Booked returns the cluster as it is once what is being launched is up: pods with a reservation (objects.AnnotationPlannedPods) are on
// their nodes, and NodeClaims that have an instance have their Node. Pods whose instance isn't known yet are left out: nothing has to be
// bought for them any more. bookings are all these reservations, by the UID of the pod.
func Booked(set *manifest.Set, kind *cloudprovider.NodeClassKind) (after *manifest.Set, bookings map[types.UID]Booking) {
	nodes := map[string]*corev1.Node{}
	for _, n := range manifest.All[*corev1.Node](set) {
		nodes[n.Name] = n
	}
	waiting := map[types.UID]bool{}
	for _, pod := range manifest.All[*corev1.Pod](set) {
		waiting[pod.UID] = pod.Spec.NodeName == ""
	}
	bookings = map[types.UID]Booking{}
	places := map[types.UID]string{} // names of nodes; empty: none yet
	var added []client.Object
	for _, nc := range manifest.All[*karpv1.NodeClaim](set) {
		if karpenter.OfAnotherProvider(nc, kind.GroupKind()) || !nc.DeletionTimestamp.IsZero() {
			continue
		}
		renamed := nc.DeepCopy()
		objects.UseNewNames(renamed.Annotations)
		c := karpenter.ClaimOf(renamed, kind.GroupKind())
		b := Booking{Claim: nc, Node: nodes[c.NodeName]}
		place := c.NodeName
		if b.Node == nil {
			if place = ""; c.Launched && len(c.Allocatable) > 0 && c.InstanceType != "" {
				n := nodeOf(c)
				added, place = append(added, n), n.Name
			}
		}
		for i := range c.Slots {
			if uid := c.Slots[i].Pod.UID; waiting[uid] { // pods that are bound by now don't need their reservation
				bookings[uid], places[uid] = b, place
			}
		}
	}
	after = set.Edit(func(o client.Object) client.Object {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Spec.NodeName != "" {
			return o
		}
		place, planned := places[pod.UID]
		switch {
		case !planned:
			return o
		case place == "":
			return nil
		}
		pod = pod.DeepCopy()
		pod.Spec.NodeName = place
		return pod
	})
	return after.With(added...), bookings
}

// nodeOf returns the Node of a claim whose instance is known, as it will be.
func nodeOf(c *capacity.Claim) *corev1.Node {
	inst := c.Instance()
	if inst.NodeName = c.NodeName; inst.NodeName == "" {
		inst.NodeName = c.Name
	}
	n := karpenter.NodeFor(c, inst, nil)
	n.UID = types.UID(c.UID)
	n.Spec.Taints = c.Taints // all others go by themselves
	return n
}
