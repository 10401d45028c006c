// Package reasons says why a pod may not go to a node, or not yet.
package reasons

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// These may apply to any pod. Filter asks the ledger about many nodes and mostly compares the answers with nil, so no text is built before
// Error is called, and most answers cost no allocation.
var (
	ErrRemoved     = errors.New("the node is being removed")
	ErrElsewhere   = errors.New("capacity is reserved for the pod on another node")
	ErrLate        = errors.New("the node has not registered in time")
	ErrNotLaunched = errors.New("its node is being launched")
	ErrUnclaimed   = errors.New("its node has not registered yet, and the NodeClaim that it belongs to isn't known")
	ErrUnread      = errors.New("its node has not registered yet, and its user data can't be read: what it leaves for pods isn't known before")
	ErrUncertain   = errors.New("its node has not registered yet, and no node of its instance type and image has shown how much memory there is for pods")
	// ErrApart: the pod must not share the node with a pod that is planned there.
	ErrApart = errors.New("anti-affinity to a pod planned for the node")
)

// NotYet: the node has not reached the state in which pods of the class may be bound.
type NotYet struct{ *capacity.Class }

var notYetTexts = [...]string{capacity.BindRegistered: "has not registered", capacity.BindReady: "is not Ready", capacity.BindInitialized: "is not initialized"}

func (e NotYet) Error() string {
	return "its node " + notYetTexts[e.Bind] + " yet: " + e.BindReason
}

// Tainted: the node has a taint that the pod doesn't tolerate.
type Tainted struct{ *corev1.Taint }

func (e Tainted) Error() string { return "its node still has the taint " + e.ToString() }

// Undeclared is a taint that the node will get.
type Undeclared struct{ *corev1.Taint }

func (e Undeclared) Error() string {
	return "its node is not Ready yet: nodes of its pool get the taint " + e.ToString() + ", which the pool does not declare"
}

// NoDriver is a CSI driver that is not on the node yet, or a storage class without capacity there (capacity.StorageOf).
type NoDriver string

func (e NoDriver) Error() string {
	if class, ok := capacity.StorageClassOf(string(e)); ok {
		return "no capacity of storage class " + class + " has been published for its node yet"
	}
	if classes, ok := capacity.DeviceClassesOf(string(e)); ok {
		return "no free devices of class " + classes + " have been published for its node yet (ResourceSlices)"
	}
	return "the CSI driver " + string(e) + " has not registered on its node yet"
}

// Reserved is the resource of which the pod would take reserved capacity.
type Reserved corev1.ResourceName

func (e Reserved) Error() string { return string(e) + " is reserved for pods planned for the node" }

// PortReserved is the host port that another pod will use.
type PortReserved struct{ *corev1.ContainerPort }

func (e PortReserved) Error() string {
	return fmt.Sprintf("host port %d is reserved for a pod planned for the node", e.HostPort)
}

// VolumesReserved is the driver, or storage class, of which the pod would take reserved attachments or capacity.
type VolumesReserved string

func (e VolumesReserved) Error() string {
	if class, ok := capacity.StorageClassOf(string(e)); ok {
		return "storage of class " + class + " is reserved for pods planned for the node"
	}
	if classes, ok := capacity.DeviceClassesOf(string(e)); ok {
		return "devices of class " + classes + " are reserved for pods planned for the node"
	}
	return "attachments of " + string(e) + " are reserved for pods planned for the node"
}
