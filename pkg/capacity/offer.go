package capacity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// InstanceType is an instance type as one node class would run it: its numbers and labels include the class's kubelet settings, AMI
// family and storage policy.
type InstanceType struct {
	Name string
	// Labels are those that every node of this type has, with single values; without zone, capacity type and hostname.
	Labels map[string]string
	// Capacity is the status.capacity that the Node will have.
	Capacity Resources
	// Allocatable is what is left for pods. It must never exceed what the kubelet will report, or the kubelet rejects pods that were
	// bound early.
	Allocatable Resources
	// CertainMemory is how many bytes of Allocatable's memory every node of this type has. The rest is an estimate, because no such node has
	// reported its memory yet. 0: all of it is certain.
	CertainMemory int64
	// Special: bare metal, or an instance with GPUs or accelerators. It is slow to boot, or has what most pods can't use, and is bought
	// only for pods that fit nothing else.
	Special bool
	// Image is the image that a node of this type starts from; empty: not known.
	Image string
	// CapacityOverlaid: a NodeOverlay has added resources to Capacity and Allocatable, or changed amounts.
	CapacityOverlaid bool
	// VolumeLimits is how many volumes a node can attach, by CSI driver name. Under a key of StorageOf it is the bytes that the node has for volumes,
	// under a key of DevicesOf the number of pods that its devices suffice for. What is not listed is unlimited.
	VolumeLimits map[string]int64
	// Devices is a key for the devices of dynamic resource allocation that its nodes will have; empty: none are known. Types with the same
	// key have the same devices.
	Devices string
	// Offers are the ways to buy it, in no particular order.
	Offers []Offer
	// Node is what the node class's custom user data sets on nodes, besides what their pool sets. All types of the class share it; nil: nothing.
	Node *NodeSettings
}

// NodeSettings is what the custom user data of a node class sets on its nodes.
type NodeSettings struct {
	// Labels and Taints are those that the kubelet would give a Node that it creates.
	Labels map[string]string
	Taints []corev1.Taint
	// Unread: a part of the user data can't be read. It may set more, and leave less for pods than Allocatable says.
	Unread bool
}

// PriceOverlaid reports whether a NodeOverlay has set or changed the price of one of the offerings.
func (t *InstanceType) PriceOverlaid() bool {
	return slices.ContainsFunc(t.Offers, func(o Offer) bool { return o.PriceOverlaid })
}

// AddExtra gives the type resources that the cloud doesn't know, or other amounts of those it knows. The caller must own t; the maps that
// t shares with other types stay as they are. Huge pages are subtracted from the memory for pods.
func (t *InstanceType) AddExtra(extra Resources) {
	before, memory := t.Capacity, t.Allocatable[corev1.ResourceMemory]
	t.Capacity, t.Allocatable, t.CapacityOverlaid = t.Capacity.Clone(), t.Allocatable.Clone(), true
	for name, amount := range extra {
		t.Capacity[name], t.Allocatable[name] = amount, amount
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			t.Allocatable[corev1.ResourceMemory] = max(0, t.Allocatable[corev1.ResourceMemory]-amount+before[name])
		}
	}
	if t.CertainMemory > 0 {
		t.CertainMemory = max(1, t.CertainMemory+t.Allocatable[corev1.ResourceMemory]-memory)
	}
}

// Offer is an offering: one way to buy an instance type.
type Offer struct {
	Zone         string
	CapacityType string // on-demand, spot or reserved
	// Price in $/h is what is compared, after overlays. Reserved capacity costs next to nothing, because it is paid for anyway. +Inf: the
	// price is unknown, and the offering is not bought.
	Price float64
	// PriceOverlaid: a NodeOverlay has set or changed the price, so that it is not what the cloud asks for.
	PriceOverlaid bool
	// Available is false while the offering is remembered as unavailable. Unsettled: it was unavailable a short time ago and may be so again, so
	// most consolidations, for which no pod waits, don't buy it. Leaving: the cloud recently recommended moving off it, so others are preferred.
	Available, Unsettled, Leaving bool
	// ReservationID and Remaining are set for reserved offerings; Remaining is how many instances the capacity reservation has left.
	ReservationID string
	Remaining     int
	// Tenancy is "dedicated" for hardware that no other account shares; empty: shared.
	Tenancy string
	// Labels are those of a node bought this way, besides its type's labels, zone and capacity type (zone id, tenancy, reservation). They
	// are shared between offerings and must not be changed.
	Labels map[string]string
}

// Label returns a label that the offering sets.
func (o *Offer) Label(key string) (string, bool) {
	switch key {
	case LabelZone:
		return o.Zone, o.Zone != ""
	case LabelCapacityType:
		return o.CapacityType, true
	case LabelReservationID:
		return o.ReservationID, o.ReservationID != ""
	}
	v, ok := o.Labels[key]
	return v, ok
}

// Shared reports whether the hardware may be shared with other accounts.
func (o *Offer) Shared() bool { return o.Tenancy == "" }

// Allows reports whether a node bought this way satisfies a requirement on a label of offerings.
func (o *Offer) Allows(r Requirement) bool {
	v, ok := o.Label(r.Key)
	return ok && r.Has(v) || !ok && r.AllowsAbsent()
}

// Satisfies reports whether a node bought this way satisfies requirements on labels of offerings.
func (o *Offer) Satisfies(rs Requirements) bool {
	for _, r := range rs {
		if !o.Allows(r) {
			return false
		}
	}
	return true
}

// NodeOffer is an offering with its instance type: one thing that CreateFleet may be asked for.
type NodeOffer struct {
	Type  *InstanceType
	Offer Offer
}

// OfferKey identifies an offering in records and among unavailable offerings.
type OfferKey struct {
	InstanceType string `json:"type"`
	Zone         string `json:"zone"`
	CapacityType string `json:"capacityType"`
	// ReservationID is set for reserved offerings only.
	ReservationID string `json:"reservation,omitempty"`
	Tenancy       string `json:"tenancy,omitempty"`
}

// Key returns the offering's key.
func (o NodeOffer) Key() OfferKey {
	return OfferKey{InstanceType: o.Type.Name, Zone: o.Offer.Zone, CapacityType: o.Offer.CapacityType, ReservationID: o.Offer.ReservationID, Tenancy: o.Offer.Tenancy}
}

// Shared reports whether the hardware may be shared with other accounts.
func (k *OfferKey) Shared() bool { return k.Tenancy == "" }
