// Package storage evaluates the capacity that CSI drivers publish for their volumes (CSIStorageCapacity), where that capacity is
// created and removed with the node: LVM volume groups, local disks.
//
// CSIDriver.spec.storageCapacity tells whether a driver publishes capacity, and the topology of its nodes tells whose capacity it is:
// if each topology segment is one node (Follows), nothing is published for a node that doesn't exist yet. Its capacity is estimated
// from nodes of the same pool and instance type (Shown). Capacity of a zone or a cluster exists before the node; VolumeBinding alone
// checks that.
package storage
