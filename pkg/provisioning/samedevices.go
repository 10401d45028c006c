package provisioning

import (
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// DevicesOf returns the key of the devices that a planned node will have: those of its cheapest offering.
func DevicesOf(n *capacity.PlannedNode) string {
	if len(n.Offers) == 0 {
		return ""
	}
	return n.Offers[0].Type.Devices
}

// CertainDevices is DevicesOf if the node has them whichever of its offerings is launched; else empty.
func CertainDevices(n *capacity.PlannedNode) string {
	key := DevicesOf(n)
	if slices.ContainsFunc(n.Offers, func(o capacity.NodeOffer) bool { return o.Type.Devices != key }) {
		return ""
	}
	return key
}

// sameDevices leaves only offerings with the same devices to nodes with pods that use devices: the filters are asked about one set of devices
// for a node, and it has to be right whatever is launched.
func sameDevices(plan *capacity.Plan) {
	uses := map[string]bool{}
	for i := range plan.Placements {
		for key := range plan.Placements[i].Class.Volumes {
			if _, is := capacity.DeviceClassesOf(key); is {
				uses[plan.Placements[i].Node] = true
			}
		}
	}
	for i, n := range plan.Nodes {
		others := func(o capacity.NodeOffer) bool { return o.Type.Devices != DevicesOf(n) }
		if !uses[n.ID] || !slices.ContainsFunc(n.Offers, others) {
			continue
		}
		same := *n
		same.Offers = slices.DeleteFunc(slices.Clone(n.Offers), others)
		plan.Nodes[i] = &same
	}
}
