package consolidation

import (
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// ConsolidationPolicy is a pool's consolidationPolicy, as Karpenter 1.14 has it.
type ConsolidationPolicy string

const (
	// WhenEmpty: only empty nodes are removed.
	WhenEmpty ConsolidationPolicy = "WhenEmpty"
	// WhenEmptyOrUnderutilized: any move that saves money may be made. It is the default.
	WhenEmptyOrUnderutilized ConsolidationPolicy = "WhenEmptyOrUnderutilized"
	// Balanced: a move's share of the pool's cost must be at least half of its share of the pool's disruption.
	Balanced ConsolidationPolicy = "Balanced"
)

// Defaults for what the Kubernetes objects don't say.
const (
	DefaultRestartCost = 10 * time.Minute
	DefaultFirstHour   = time.Hour
	// DefaultSpotFlexibility is Karpenter's number of cheaper instance types.
	DefaultSpotFlexibility = 15
)

// Policy is what a pool allows.
type Policy struct {
	Consolidate ConsolidationPolicy // empty: WhenEmptyOrUnderutilized
	// RestartCost is what moving a pod costs: as much as the pod costs in this time, at the mean price of the pool's pods. 0: nothing. Then
	// moves are due at once, nodes have no first hour, and several nodes are replaced together.
	RestartCost time.Duration
	// FirstHour is for how long a new node is no candidate, unless it is empty or has to go.
	FirstHour time.Duration
	// Budgets are how many nodes may still be disrupted now, by reason. A reason that is missing allows none.
	Budgets map[Reason]int
	// SpotFlexibility is how many instance types must be cheaper before a spot node is replaced by a spot node.
	SpotFlexibility int
	// Canary is the name of a roll-out, if it isn't known yet whether new nodes of the pool work: all pools with the same name together
	// launch only one node at a time, and only for nodes that have to go. Empty: it is known.
	Canary string
	// Held is why not even this one node may be launched now; empty: it may.
	Held string
}

// unproven says why no node of a pool is launched for a move.
func (p *Policy) unproven(pool string) string {
	if p.Held != "" {
		return p.Held
	}
	return "nodes of pool " + pool + " are launched one at a time until one of them has proved to work"
}

// DefaultPolicy returns the policy of a pool that sets nothing, without budgets.
func DefaultPolicy() Policy {
	return Policy{Consolidate: WhenEmptyOrUnderutilized, RestartCost: DefaultRestartCost, FirstHour: DefaultFirstHour, SpotFlexibility: DefaultSpotFlexibility}
}

// Options are the settings of one pass.
type Options struct {
	Now time.Time
	// Pools are the policies, by pool. Nodes of other pools are kept.
	Pools map[string]Policy
	// Accrual is what has accrued until the last pass. The pass only reads it: the caller passes the proposal to Accrual.Observe afterwards.
	Accrual *Accrual
	// Prices are the planner's settings: NodeSurcharge, PriceFactor, IgnorePreferences and Forbidden count here, too.
	Prices capacity.Options
	// Boot is how long a new node takes until it is ready.
	Boot time.Duration
	// Effort limits the work for replacing several nodes together, in sets of nodes that are tried; 0: DefaultEffort.
	Effort int
	// Pass is the number of the pass. Passes with different numbers try different sets of nodes.
	Pass int
}

// DefaultEffort is about a second for large clusters.
const DefaultEffort = 3000
