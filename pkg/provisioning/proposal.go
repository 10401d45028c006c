package provisioning

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// Proposal is a verified plan, or nodes for no pods, that may be launched. What can't be launched is removed from the plan.
type Proposal struct {
	Plan *capacity.Plan
	// Claims are the NodeClaims that users wrote, by planned node. Other nodes get claims of their own.
	Claims map[string]*capacity.Claim
	For    capacity.Purpose
	// Workload is what nodes for no pods, which are all alike, count as for the spending guard.
	Workload guard.Workload
	Terms    Terms
}

// Terms say under which conditions nodes are bought.
type Terms struct {
	Lifted []guard.Key                 // breakers that don't stop this purchase
	Probe  guard.Key                   // the one of them that the purchase probes
	Urgent bool                        // the nodes that it replaces are about to be lost
	Pod    func(types.UID) *corev1.Pod // finds the plan's pods; nil: among the pending ones
}

// Outcome is what has become of a Proposal. Pods that are refused are in its plan.
type Outcome struct {
	Claims map[string]*capacity.Claim // by planned node
	// Why is why nodes have left the plan, or why nodes for no pods are only a probe; empty: all are launched.
	Why string
	// Paused: a breaker stops all of the nodes, which are for no pods.
	Paused bool
}
