package capacity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// InstanceType is a kind of machine as one node class would run it: kubelet settings, AMI family and storage policy
// of the class are already in its numbers and labels.
type InstanceType struct {
	Name string
	// Labels every node of this type carries, single valued; without zone, capacity type and hostname.
	Labels map[string]string
	// Capacity is what the Node's status.capacity will say.
	Capacity Resources
	// Allocatable is what is left for pods. It must never be above what the kubelet will report, or early-bound pods
	// are rejected there.
	Allocatable Resources
	// Special: bare metal, or a machine with GPUs or accelerators. It is slow to boot, or has what most pods can't use, and is bought
	// only for pods that nothing else holds.
	Special bool
	// Image is the image that a node of this type starts from; empty: not known.
	Image string
	// CapacityOverlaid says that a NodeOverlay has added to both.
	CapacityOverlaid bool
	// VolumeLimits is the number of volumes per CSI driver name, and under StorageOf the bytes for volumes; what is not listed is
	// unlimited.
	VolumeLimits map[string]int64
	// Offers are the ways to buy it. Order is not significant.
	Offers []Offer
}

// PriceOverlaid says whether a NodeOverlay has had its say about the price of one of the offers.
func (t *InstanceType) PriceOverlaid() bool {
	return slices.ContainsFunc(t.Offers, func(o Offer) bool { return o.PriceOverlaid })
}

// AddExtra gives the type resources that the cloud doesn't know of, or other amounts of them than it says. It must be the caller's
// own copy; the maps it shares with the one it was copied from stay as they are. Huge pages come out of the memory for pods.
func (t *InstanceType) AddExtra(extra Resources) {
	before := t.Capacity
	t.Capacity, t.Allocatable, t.CapacityOverlaid = t.Capacity.Clone(), t.Allocatable.Clone(), true
	for name, amount := range extra {
		t.Capacity[name], t.Allocatable[name] = amount, amount
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			t.Allocatable[corev1.ResourceMemory] = max(0, t.Allocatable[corev1.ResourceMemory]-amount+before[name])
		}
	}
}

// Offer is one way to buy an instance type.
type Offer struct {
	Zone         string
	CapacityType string // on-demand, spot or reserved
	// Price in $/h is what is compared, after overlays: next to nothing for what is reserved and so paid for anyway. +Inf: nobody
	// knows, and nobody buys it.
	Price float64
	// PriceOverlaid says that a NodeOverlay has had its say about the price: it is a wish, and not what the cloud asks for.
	PriceOverlaid bool
	// Available is false while the offer is remembered as having no capacity.
	Available bool
	// ReservationID and Remaining are set for reserved offers: how many instances the reservation still holds.
	ReservationID string
	Remaining     int
	// Tenancy is "dedicated" for hardware nobody else shares; empty: shared.
	Tenancy string
	// Labels a node bought this way carries beside its type's labels, zone and capacity type (zone id, tenancy, reservation).
	// They are shared between offers and must not be changed.
	Labels map[string]string
}

// label is a label that the offer brings.
func (o *Offer) label(key string) (string, bool) {
	switch key {
	case labelZone:
		return o.Zone, o.Zone != ""
	case labelCapacityType:
		return o.CapacityType, true
	case LabelReservationID:
		return o.ReservationID, o.ReservationID != ""
	}
	v, ok := o.Labels[key]
	return v, ok
}

// allows says whether a node bought this way satisfies a requirement on a label of offers.
func (o *Offer) allows(r Requirement) bool {
	v, ok := o.label(r.Key)
	return ok && r.Has(v) || !ok && r.AllowsAbsent()
}

// Satisfies says whether a node bought this way satisfies requirements on labels of offers.
func (o *Offer) Satisfies(rs Requirements) bool {
	for _, r := range rs {
		if !o.allows(r) {
			return false
		}
	}
	return true
}

// NodeOffer is an offer of a certain type: one thing CreateFleet may be asked for.
type NodeOffer struct {
	Type  *InstanceType
	Offer Offer
}

// OfferKey names an offer for remembering and recording.
type OfferKey struct {
	InstanceType string `json:"type"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// ReservationID is set for reserved offers only.
	ReservationID string `json:"reservation,omitempty"`
	Tenancy       string `json:"tenancy,omitempty"`
}

// Key names the offer.
func (o NodeOffer) Key() OfferKey {
	return OfferKey{InstanceType: o.Type.Name, Zone: o.Offer.Zone, CapacityType: o.Offer.CapacityType, ReservationID: o.Offer.ReservationID, Tenancy: o.Offer.Tenancy}
}
