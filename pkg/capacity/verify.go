package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// Trial is a set of placements to be tried against the profile's real filters before money is spent.
type Trial struct {
	// Nodes that don't exist yet: planned ones and in-flight ones without a Node object; each as it will be when Ready, with
	// the pods of its DaemonSets.
	Nodes []TrialNode
	// Promised are pods that are promised room by earlier plans and not yet bound: they are there from the start.
	Promised []Step
	// Steps in bind order. All Nodes are present before the first.
	Steps []Step
	// Alone: each step is tried as if the others were not there.
	Alone bool
}

// TrialNode is a hypothetical node. One with the name of a node that the scheduler's cache has stands in for it: its Node
// is judged in the real one's place (an initializing node without its startup taints), its Pods join those already there
// (DaemonSet pods still missing).
type TrialNode struct {
	Node *corev1.Node
	Pods []*corev1.Pod
	// Instead: Pods are all there is on the node; those the cache has there have left.
	Instead bool
}

// Step puts a pod on a node.
type Step struct {
	// Pod is the pod or its class's representative; it is not changed.
	Pod *corev1.Pod
	// Class lets the verifier do the costly part of filtering once per class.
	Class ClassKey
	Node  string
}

// Rejection is a step that the filters refuse. Steps after it are tried as if it had not been there.
type Rejection struct {
	// Step is the index into Trial.Steps.
	Step int
	// Plugin that refused and its reason, as kube-scheduler words it.
	Plugin, Reason string
}
