package consolidation

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Proposal is the result of a pass.
type Proposal struct {
	// Moves are those that are due now, in the order in which they are to be made: empty nodes, forced moves, then the others by what they
	// save per disruption. All of them together are within the budgets.
	Moves []Move
	// Kept are all other candidates, in their order.
	Kept []Kept
	// Rates are what is lost per hour, in $, on each node that would be emptied if moves were free. Accrual.Observe takes them.
	Rates map[string]float64
	// Waste is the part of each candidate's price that its pods aren't worth, in $/h; it may be negative. Nodes with the least waste per
	// price are worth keeping.
	Waste map[string]float64
	// Bound is a value below which no nodes for the candidates' pods can cost, in $/h, as far as it is known; 0: unknown.
	Bound float64
}

// Move empties nodes. The new places of its pods are free now or on new nodes, so they don't depend on whether other moves are made.
type Move struct {
	// Nodes are the nodes to empty, sorted.
	Nodes  []string
	Reason Reason
	// New are the nodes to launch first. Their IDs are unique within the proposal.
	New []*capacity.PlannedNode
	// Placements are the places where the reschedulable pods go in the end, even if the plan put them on other nodes at first. Only the pods of empty
	// nodes, which don't count (Pod.Cost), may have none.
	Placements []capacity.Placement
	// Saves is the price of Nodes less that of New, in $/h, if each new node is launched as the dearest offering that it may be.
	Saves float64
	// Ceiling is the most that all new nodes together may cost, in $/h, for the move to save anything. If it is forced: +Inf, or what its rule allows.
	Ceiling float64
	// Disruption is 1 for each node and the disruption cost of each pod, as Karpenter counts.
	Disruption float64
	// Cost is what the move costs once, in $: restarts, and nodes paid at the same time. Accrued is what has accrued on Nodes.
	Cost, Accrued float64
}

// PaysBack returns how long the move takes to save what it costs.
func (m *Move) PaysBack() time.Duration {
	if m.Cost <= 0 {
		return 0
	}
	if hours := m.Cost / m.Saves; m.Saves > 0 && hours < 24*365 {
		return time.Duration(hours * float64(time.Hour))
	}
	return 365 * 24 * time.Hour
}

// Receivers returns the existing nodes that get pods, sorted.
func (m *Move) Receivers() []string {
	planned := map[string]bool{}
	for _, n := range m.New {
		planned[n.ID] = true
	}
	return sortedNodes(m.Placements, planned)
}
