package drift

import (
	"errors"
	"slices"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// The reasons of this cloud, in Karpenter's words.
const (
	AMIDrift                 cloudprovider.DriftReason = "AMIDrift"
	SubnetDrift              cloudprovider.DriftReason = "SubnetDrift"
	SecurityGroupDrift       cloudprovider.DriftReason = "SecurityGroupDrift"
	CapacityReservationDrift cloudprovider.DriftReason = "CapacityReservationDrift"
	PlacementGroupDrift      cloudprovider.DriftReason = "PlacementGroupDrift"
)

// Class is what a node class is resolved to, for one instance type. A part that isn't known yet must not count as empty: Of returns an error
// as long as it needs such a part.
type Class struct {
	// Images is the number of images of the class; 0: they are not known yet. Image is the id of the image that the type is launched with; empty:
	// no image fits the type.
	Images int
	Image  string
	// Groups and Subnets are the ids of the class's security groups and subnets; empty: not known yet. OwnGroups: the security groups come from a
	// launch template of the user's, and not from the class.
	Groups, Subnets []string
	OwnGroups       bool
	// Reservations are the ids of the capacity reservations that the class selects.
	Reservations      []string
	ReservationsKnown bool
	// PlacementGroup is the id of the class's placement group; empty: it has none.
	PlacementGroup string
	PlacementKnown bool
}

// Of returns why an instance isn't what the class would launch now; "": it is. If there are several reasons, it is the first in Karpenter's order.
// labels are those of the claim.
func Of(c *Class, i *Instance, image string, labels map[string]string) (cloudprovider.DriftReason, error) {
	switch {
	case c.Images == 0:
		return "", errors.New("the images are not known")
	case image == "":
		return "", errors.New("the image of the instance is not known")
	case c.Image != image:
		return AMIDrift, nil
	case i.Subnet == "" || len(i.Groups) == 0:
		return "", errors.New("EC2 doesn't show the instance's network yet, or any more")
	case c.OwnGroups:
	case len(c.Groups) == 0:
		return "", errors.New("the security groups are not known")
	case !sameSet(c.Groups, i.Groups):
		return SecurityGroupDrift, nil
	}
	switch {
	case len(c.Subnets) == 0:
		return "", errors.New("the subnets are not known")
	case !slices.Contains(c.Subnets, i.Subnet):
		return SubnetDrift, nil
	case i.Reservation != "" && !c.ReservationsKnown:
		return "", errors.New("the capacity reservations are not known")
	case i.Reservation != "" && !slices.Contains(c.Reservations, i.Reservation):
		return CapacityReservationDrift, nil
	case !c.PlacementKnown:
		return "", errors.New("the placement group is not known")
	case labels[ec2nc.LabelPlacementGroupID] != c.PlacementGroup:
		return PlacementGroupDrift, nil
	}
	return "", nil
}

func sameSet(a, b []string) bool {
	in := func(all []string) func(string) bool {
		return func(one string) bool { return !slices.Contains(all, one) }
	}
	return !slices.ContainsFunc(a, in(b)) && !slices.ContainsFunc(b, in(a))
}

// TypeSold returns the hardware of an instance type; nil if the region doesn't have the type or the zone, or doesn't sell the type by the labels'
// capacity type. Whether there is capacity now doesn't matter. Capacity type reserved always counts as sold, because some types are sold only in
// capacity blocks; CapacityReservationDrift tells when a reservation has ended. The error means that the region's types aren't known.
func TypeSold(r *catalog.Region, labels map[string]string, name, zone string) (*catalog.Hardware, error) {
	if r.Types == nil || r.Zones == nil {
		return nil, errors.New("the region's instance types are not known")
	}
	h := r.Find(name)
	if h == nil || !zoneExists(r, name, zone) {
		return nil, nil
	}
	sold := true
	switch labels[karpv1.CapacityTypeLabelKey] {
	case karpv1.CapacityTypeSpot:
		sold = h.Spot
	case karpv1.CapacityTypeOnDemand:
		sold = h.OnDemand
	}
	if !sold {
		return nil, nil
	}
	return h, nil
}

// zoneExists reports whether the region has the zone. As in Karpenter, nodes don't drift if their type isn't offered in their zone any more.
func zoneExists(r *catalog.Region, name, zone string) bool {
	if slices.Contains(r.Zones[name], zone) {
		return true
	}
	for _, zones := range r.Zones {
		if slices.Contains(zones, zone) {
			return true
		}
	}
	return false
}
