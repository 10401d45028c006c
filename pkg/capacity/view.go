package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// View is everything a plan depends on. The same view gives the same plan.
type View struct {
	// Pools in the order in which they are tried: weight, highest first, then name.
	Pools []*Pool
	// Nodes are existing and in-flight nodes. Order is significant: earlier nodes are filled first.
	Nodes []*Node
	// Demand in the order in which it is served: priority, highest first.
	Demand []Demand
	// DaemonSets whose pods will come to new nodes that they fit.
	DaemonSets []*DaemonSet
	// Namespaces gives namespace labels; nil: no namespace has labels.
	Namespaces NamespaceLabels
}

// Node is an existing or in-flight node as the planner sees it.
type Node struct {
	// Name is the Node's name; for a node whose Node object isn't there yet, its NodeClaim's name.
	Name string
	// Claim is the NodeClaim's name; empty for nodes that aren't ours.
	Claim string
	// InFlight is true as long as the node has not been initialized.
	InFlight bool
	// Labels incl. hostname. In flight: only those that are certain.
	Labels map[string]string
	// Taints a pod must tolerate; without the ephemeral and startup taints of a node in flight.
	Taints []corev1.Taint
	// Unschedulable nodes are counted as topology domains but get no pods.
	Unschedulable bool
	// Closed nodes are counted, too, and get no pods whatever these tolerate: they are about to go, or have not come in time.
	Closed      bool
	Allocatable Resources
	// Free is Allocatable less what is bound, assumed or promised there and less missing DaemonSet pods.
	Free Resources
	// Pods bound, assumed or promised there, for topology, affinity and host ports. Shared, not to be changed.
	Pods []*corev1.Pod
	// VolumesFree is the number of volumes per CSI driver that can still be attached, and under StorageOf the bytes that are free; what
	// is not listed is unlimited.
	VolumesFree map[string]int64
	// Boot is equal for nodes that take equally long to come up, as far as that is known. In flight only.
	Boot string
}
