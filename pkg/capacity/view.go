package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// View is everything a plan depends on. The same view gives the same plan.
type View struct {
	// Pools are in the order in which they are tried: weight, highest first, then name.
	Pools []*Pool
	// Nodes are existing and in-flight nodes. Order is significant: earlier nodes are filled first.
	Nodes []*Node
	// Demand is in the order in which it is placed: priority, highest first.
	Demand []Demand
	// DaemonSets are those whose pods run on new nodes that they fit.
	DaemonSets []*DaemonSet
	// Coverage is what commitments cover of what exists or is being launched; nil: there are none.
	Coverage *Coverage
	// Namespaces returns namespace labels; nil: no namespace has labels.
	Namespaces NamespaceLabels
}

// Node is an existing or in-flight node as the planner sees it.
type Node struct {
	// Name is the Node's name; for a node whose Node object isn't there yet, its NodeClaim's name.
	Name string
	// Claim is the NodeClaim's name; empty for unmanaged nodes.
	Claim string
	// InFlight is true as long as the node has not been initialized.
	InFlight bool
	// Labels includes the hostname. In flight: only labels that are certain.
	Labels map[string]string
	// Taints are those that a pod must tolerate; without the ephemeral and startup taints of a node in flight.
	Taints []corev1.Taint
	// Unschedulable nodes are counted as topology domains but get no pods.
	Unschedulable bool
	// Closed nodes get no pods, whatever taints these tolerate, because they are about to be removed or have not registered in time. The
	// pods on them still count for spread and affinity.
	Closed      bool
	Allocatable Resources
	// Free is Allocatable minus what is bound, assumed or reserved there, and minus the DaemonSet pods that are missing.
	Free Resources
	// Pods are those bound or assumed there or with a reservation, for topology, affinity and host ports. Shared, must not be changed.
	Pods []*corev1.Pod
	// VolumesFree is the number of volumes that can still be attached, by CSI driver. Under a key of StorageOf it is the bytes that are free, under a
	// key of DevicesOf the number of pods that free devices suffice for. What is not listed is unlimited.
	VolumesFree map[string]int64
	// Kind is what is known of a node in flight before it is initialized; zero for other nodes.
	Kind NodeKind
}

// NodeKind is what a node in flight has in common with others that were planned alike: how long it takes to boot, and its devices.
type NodeKind struct {
	// Boot is equal for nodes that take equally long to boot, as far as that is known.
	Boot string
	// Devices is the key of the devices that the node will have (InstanceType.Devices).
	Devices string
}

// Label returns a label of an existing node, or its name for the key of matchFields.
func (n *Node) Label(key string) (string, bool) {
	v, ok := n.Labels[key]
	if !ok && key == FieldNodeName {
		return n.Name, true
	}
	return v, ok
}
