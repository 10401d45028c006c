package consolidation

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Candidate is a managed node of the view, with what emptying it means. Callers pass one for every managed node of every pool, also for
// those that can't be emptied: Balanced compares with the whole pool.
type Candidate struct {
	// Node is its name in View.Nodes.
	Node string
	Pool string
	// Price is what its offering costs, in $/h, as Offer.Price has it, and with the same surcharge and factor as Options.Prices has for new
	// nodes. +Inf or NaN: unknown. Such a node is kept.
	Price        float64
	CapacityType string
	CreatedAt    time.Time
	// Pods are the reschedulable pods: those that need another node when this one is emptied. DaemonSet pods are not among them.
	Pods []Pod
	// OtherPods is the disruption cost of pods that are not among Pods although they need another node: those without controller, and those for
	// which no capacity can be planned. Only Balanced counts them, as a part of the pool's disruption.
	OtherPods float64
	// Blocked says why it can't be emptied now (Kind and details; Node is filled in); nil: it may be. It can still take other nodes' pods.
	Blocked *Kept
	// Drain is how long draining it is expected to take, from its pods' disruption budgets and grace periods.
	Drain time.Duration
	// ReceivedUntil: it took pods that were moved, and is no candidate until those moves have paid for themselves (Move.PaysBack).
	ReceivedUntil time.Time
	// Ending: it has to end soon for another reason. It gets no pods, which would have to move again.
	Ending bool
	// Forced: it has to be emptied for this reason, whatever that costs; empty: it needn't.
	Forced Reason
	// ForcedAt is since when it has to be emptied.
	ForcedAt time.Time
	// ReturnsAt is set on a node that was bought on demand only because no spot capacity was available: from then on it may be replaced by
	// spot capacity, even if its first hour isn't over. Zero: it isn't such a node.
	ReturnsAt time.Time
}

// Pod is a reschedulable pod of a candidate.
type Pod struct {
	Ref   capacity.PodRef
	Class *capacity.Class
	Owner types.UID
	// Cost is its disruption cost as Karpenter computes it: 1 for an ordinary pod, from -10 to 10. Pods with a cost of zero or less don't
	// count, and a node with no others is empty.
	Cost float64
	// Restart replaces Policy.RestartCost for this pod: it is what the pod's restart is worth at a Cost of 1; nil: Policy.RestartCost applies.
	Restart *time.Duration
}

// Reason is why a node is disrupted, as Karpenter's budgets name it.
type Reason string

// Reasons. Those from Expired on have no budget. All others, also those that aren't listed here, have one.
const (
	Empty         Reason = "Empty"
	Underutilized Reason = "Underutilized"
	Drifted       Reason = "Drifted"
	// RebalanceRecommended: the cloud recommends to leave its spot capacity. It is left only for other spot capacity that may last longer.
	RebalanceRecommended Reason = "RebalanceRecommended"
	Expired              Reason = "Expired"
	Interrupted          Reason = "Interrupted"
	Unhealthy            Reason = "Unhealthy"
)

// Budgeted reports whether disruption budgets limit the reason.
func (r Reason) Budgeted() bool {
	return r != "" && r != Expired && r != Interrupted && r != Unhealthy
}

// disruption returns the node's disruption cost as Karpenter's policy Balanced counts it.
func (c *Candidate) disruption() float64 { return 1 + c.podCost() + c.OtherPods }

// podCost returns the sum of its pods' disruption costs, without those below zero.
func (c *Candidate) podCost() float64 {
	sum := 0.0
	for i := range c.Pods {
		sum += max(0, c.Pods[i].Cost)
	}
	return sum
}

// PodsOf returns the pods of the candidates, by UID.
func PodsOf(candidates []Candidate) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range candidates {
		for j := range candidates[i].Pods {
			out[candidates[i].Pods[j].Ref.UID] = true
		}
	}
	return out
}
