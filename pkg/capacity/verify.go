package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// Trial is a set of placements to be verified against the profile's real filters before money is spent.
type Trial struct {
	// Nodes are nodes that don't exist yet: planned ones, and in-flight ones without a Node object; each as it will be when Ready, with
	// the pods of its DaemonSets.
	Nodes []TrialNode
	// Promised are pods with a reservation from an earlier plan that are not bound yet. They are on their nodes from the start.
	Promised []Step
	// Steps are in the order in which the pods are to be bound. All Nodes are present before the first.
	Steps []Step
	// Alone: each step is verified as if the others did not exist.
	Alone bool
	// AnyOrder: the pods may be bound in another order. A step that is refused is tried again after the others, as often as that helps.
	AnyOrder bool
}

// TrialNode is a hypothetical node. If the scheduler's cache has a node of that name, Node replaces the real Node (for example, an initializing node
// is shown without its startup taints), and Pods are added to the pods that it has (for example, DaemonSet pods that are still missing).
type TrialNode struct {
	Node *corev1.Node
	Pods []*corev1.Pod
	// Instead: Pods are all the pods on the node; those that the cache has there are ignored.
	Instead bool
	// Devices is the key of the devices that the node will have, besides those that it has published (InstanceType.Devices).
	Devices string
}

// Step puts a pod on a node.
type Step struct {
	// Pod is the pod, or one of its class; it is not changed.
	Pod *corev1.Pod
	// Class lets the verifier do the costly part of filtering once per class.
	Class ClassKey
	Node  string
	// Own: Pod is the very pod that has the reservation, and not another one of its class. Its ResourceClaims are those that will be used. Only in
	// Trial.Promised.
	Own bool
}

// Rejection is a step that the filters refuse. Later steps are verified as if it did not exist.
type Rejection struct {
	// Step is the index into Trial.Steps.
	Step int
	// Plugin is the filter that refused, Reason its reason as kube-scheduler words it.
	Plugin, Reason string
}
