package capacity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Label keys the planner treats in a special way.
const (
	labelCapacityType = "karpenter.sh/capacity-type"
	labelInstanceType = corev1.LabelInstanceTypeStable
	labelZone         = corev1.LabelTopologyZone
	labelHostname     = corev1.LabelHostname
	// fieldNodeName stands for the node field of matchFields; no label can have this key's form on a Node of ours.
	fieldNodeName = "metadata.name"
)

// LabelReservationID is the label of nodes from a reservation with its id.
const LabelReservationID = reservationPrefix + "id"

const reservationPrefix = "karpenter.k8s.aws/capacity-reservation-"

// ReservationLabel says whether a label is about the reservation of a node.
func ReservationLabel(key string) bool { return strings.HasPrefix(key, reservationPrefix) }

// offerLabels are the labels that belong to the way a machine is bought, and not to its type or its pool (Offer.Labels).
var offerLabels = []string{
	labelZone, labelCapacityType, LabelReservationID,
	"topology.k8s.aws/zone-id", "karpenter.k8s.aws/instance-tenancy",
	reservationPrefix + "type", reservationPrefix + "interruptible",
}

// OfferLabel says whether a label belongs to the way a machine is bought, and not to its type or its pool.
func OfferLabel(key string) bool { return slices.Contains(offerLabels, key) }

// The other capacity types, as the planner has to tell them apart.
const (
	capacityTypeOnDemand = "on-demand"
	capacityTypeSpot     = "spot"
)

// CapacityTypeReserved is the capacity type of offers that are paid for already.
const CapacityTypeReserved = "reserved"

// aliases are older spellings of label keys (Karpenter's normalised labels, LB-5).
var aliases = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"topology.ebs.csi.aws.com/zone":     corev1.LabelTopologyZone,
}

// NormalLabel is the present spelling of a label key.
func NormalLabel(key string) string {
	if normal, ok := aliases[key]; ok {
		return normal
	}
	return key
}

// perPodLabels differ between pods that are otherwise alike.
var perPodLabels = map[string]bool{
	"statefulset.kubernetes.io/pod-name":       true,
	"apps.kubernetes.io/pod-index":             true,
	"batch.kubernetes.io/job-completion-index": true,
}
