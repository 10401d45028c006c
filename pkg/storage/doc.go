// Package storage knows what CSI drivers publish about the room that their volumes have (CSIStorageCapacity), where that room comes and
// goes with the node: LVM volume groups, local disks.
//
// A driver says whether its capacity counts with CSIDriver.spec.storageCapacity, and by the topology of its nodes whose capacity it is: where
// a segment of the topology is one node (Follows), a node that isn't there yet has capacity that nobody has published. What it will be is
// taken from nodes of the same pool and instance type (Shown). Capacity of a zone or a cluster is there before the node: VolumeBinding
// judges that alone.
package storage
