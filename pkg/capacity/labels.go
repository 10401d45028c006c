package capacity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Label keys with a meaning of their own.
const (
	LabelCapacityType = "karpenter.sh/capacity-type"
	LabelZone         = corev1.LabelTopologyZone
	LabelHostname     = corev1.LabelHostname
	// FieldNodeName stands for the node field of matchFields; no managed Node has a label with such a key.
	FieldNodeName = "metadata.name"
)

// LabelReservationID is the label with the id of the capacity reservation that a node is from.
const LabelReservationID = reservationPrefix + "id"

// LabelTenancy is the label with the tenancy of a node's instance.
const LabelTenancy = "karpenter.k8s.aws/instance-tenancy"

const reservationPrefix = "karpenter.k8s.aws/capacity-reservation-"

// ReservationLabel reports whether a label describes a node's capacity reservation.
func ReservationLabel(key string) bool { return strings.HasPrefix(key, reservationPrefix) }

// OfferLabels are the labels that depend on the offering, and not on the instance type or the pool (Offer.Labels). They must not be changed.
var OfferLabels = []string{
	LabelZone, LabelCapacityType, LabelReservationID,
	"topology.k8s.aws/zone-id", LabelTenancy,
	reservationPrefix + "type", reservationPrefix + "interruptible",
}

// OfferLabel reports whether a label depends on the offering, and not on the instance type or the pool.
func OfferLabel(key string) bool { return slices.Contains(OfferLabels, key) }

// Capacity types of offerings. Reserved capacity is paid for already.
const (
	CapacityTypeOnDemand = "on-demand"
	CapacityTypeSpot     = "spot"
	CapacityTypeReserved = "reserved"
)

// LabelAliases maps older label keys to the current ones, as Karpenter does.
var LabelAliases = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"topology.ebs.csi.aws.com/zone":     corev1.LabelTopologyZone,
}

// NormalLabel returns the current spelling of a label key.
func NormalLabel(key string) string {
	if normal, ok := LabelAliases[key]; ok {
		return normal
	}
	return key
}
