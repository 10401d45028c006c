package provisioning

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Proposal is a verified plan, or nodes for no pods, that may be launched. It holds no lock and no goroutine. Commit takes it over and
// removes from its plan what can't be launched. A Proposal that is dropped leaves nothing behind; its pods stay queued, and the next plan
// places them.
type Proposal struct {
	Plan *capacity.Plan
	// Existing are the nodes that placements may name besides those of the plan and claims in flight.
	Existing map[string]Existing
	// Place turns the placements, which name new nodes by claim, into reservations, as a step of the ledger. plan makes ids unique
	// across plans. Nil: there are no reservations.
	Place func(l *ledger.Ledger, plan string, placements []capacity.Placement, now time.Time)
	// Claims are the NodeClaims that users wrote, by planned node. Other nodes get claims of their own.
	Claims map[string]*capacity.Claim
	For    capacity.Purpose
	// Requester is asked before each request whether the claim is still needed, and hears when its launch fails; nil: the ledger.
	Requester Requester
	// Workload is the workload for which the spending guard counts nodes that are bought for no pods. All nodes of the proposal are alike then.
	Workload guard.Workload
	Terms    Terms
}

// Existing is a node of the cluster as the ledger has to know it before pods are placed there.
type Existing struct {
	Status ledger.NodeStatus
	Claim  string // empty: the node isn't managed, or its claim is not known
}

// Terms say under which conditions nodes are bought.
type Terms struct {
	Lifted []guard.Key                 // breakers that don't stop this purchase
	Probe  guard.Key                   // the breaker among Lifted that the purchase probes
	Urgent bool                        // the nodes that it replaces are about to be lost
	Moves  bool                        // no pod waits for it (moves, chunks): half of what may be launched is left to pending pods
	Booked bool                        // it is for a ProvisioningRequest, whose pods don't exist yet
	Whole  bool                        // all nodes are bought or none
	Spare  bool                        // its one node takes the place of another one of a static pool, and may exceed the pool's limit of nodes by one
	Pod    func(types.UID) *corev1.Pod // finds the plan's pods; nil: among the pending ones
}

// Outcome is what has become of a Proposal. Pods that are refused are listed in its plan.
type Outcome struct {
	Claims map[string]*capacity.Claim // by planned node
	// Why is why nodes were removed from the plan, or why nodes for no pods are only a probe; empty: all are launched.
	Why string
	// Paused: a breaker stops all of the nodes, which are for no pods.
	Paused bool
}
