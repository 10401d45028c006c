package capacity

import (
	"k8s.io/apimachinery/pkg/types"
)

// MaxFleetTypes is how many instance types a planned node leaves open at most (Karpenter's number, LT-11).
const MaxFleetTypes = 60

// Options are the planner's settings.
type Options struct {
	// NodeSurcharge is added to the price of every new node in $/h, for disks, addresses and load that list prices omit.
	NodeSurcharge float64
	// PriceFactor multiplies the price of an instance family ("m6g": 1.1) when comparing; missing: 1.
	PriceFactor map[string]float64
	// IgnorePreferences drops every preference before the first try (Karpenter's preferencePolicy Ignore).
	IgnorePreferences bool
	// RelaxMinValues takes what there is where pools' minValues can't be met (Karpenter's minValuesPolicy BestEffort).
	RelaxMinValues bool
	// Effort is a deterministic measure of how much work may go into a cheaper plan (0: the fast path only). It is not
	// time, so that the same view gives the same plan; the caller maps its time budget to it. One is about a microsecond of
	// a core: 50,000 suits a batch that can wait a twentieth of a second, 1,000,000 leaves little to gain.
	Effort int
	// Forbidden are placements that the real filters have refused before: they are not proposed again.
	Forbidden []Forbidden
	// FixZone are classes whose new nodes are to be of one zone although nothing the planner knows depends on it: the real filters may.
	FixZone map[ClassKey]bool
	// Explain are pods, by UID, whose place the plan shall explain.
	Explain []types.UID
}

// Plan is a decision: where each pod of the demand goes, and what has to be bought for it.
type Plan struct {
	// Nodes to buy.
	Nodes []*PlannedNode
	// Placements of pods on existing, in-flight and planned nodes, in the order in which they must be bound.
	Placements []Placement
	// Refused demand with reasons.
	Refused []Refusal
	// CostPerHour of Nodes at list price; LowerBound a value that no way of packing the pods of the new nodes costs less than
	// (0: unknown: with surcharges and factors of prices, where capacity that is paid for already is bought, or where pods were
	// taken back in the end). Effort makes it sharper.
	CostPerHour, LowerBound float64
	// compared is the cost as prices are compared, yielded how many preferences were given up for pods that are placed.
	compared float64
	yielded  int
	// Explanations of the pods that Options.Explain names and the demand has.
	Explanations []Explanation
}

// PlannedNode is a node to buy: a set of offers all of which hold what is planned for it. Nodes share their
// maps and slices, which are not to be changed.
type PlannedNode struct {
	// ID is unique within the plan; it never equals the name of a node.
	ID   string
	Pool *Pool
	// CapacityType is one; capacity types are never mixed in a node.
	CapacityType string
	// Offers to choose from, cheapest first, at most MaxFleetTypes types. The zone is the same in all of them when a pod
	// of the node depends on the zone.
	Offers []NodeOffer
	// Labels every possible outcome has in common, without hostname.
	Labels map[string]string
	// Allocatable is the component-wise smallest of the offers' types.
	Allocatable Resources
	// Largest is the component-wise largest Capacity of the offers' types: what counts against pool limits.
	Largest Resources
	// Requests is the sum of the planned pods and daemons.
	Requests Resources
	// Daemons are the DaemonSets whose pods will come to this node.
	Daemons []*DaemonSet
	// VolumeLimits is the component-wise smallest of the offers' types, per CSI driver.
	VolumeLimits map[string]int64
	// Price is the price of the first offer.
	Price float64
	// MinValuesRelaxed: the offers leave fewer values than the pool's minValues ask for.
	MinValuesRelaxed bool
}

// Placement of one pod. Pods of a class are interchangeable: it is the order of a class's placements that counts.
type Placement struct {
	Class *Class
	// Pod is the holder; for look-ahead demand it is zero and Owner is the holder.
	Pod   PodRef
	Owner types.UID
	// Node is the name of a View node or the ID of a planned node.
	Node string
	// Group joins placements that depend on each other by a shared spread, affinity or gang term: none of them may be
	// bound before the nodes of all of them are there. 0: independent.
	Group int
	// Gang the pod is a member of; nil: none.
	Gang *Gang
}

// Refusal of pods of one class.
type Refusal struct {
	Class *Class
	Pods  []PodRef
	// Reasons per pool, in pool order.
	Reasons []PoolReason
	// Message reads well in `kubectl describe pod` and is capped in length.
	Message string
	// Retryable is true when the reason will pass by itself (no capacity for now, pool limit, unready class).
	Retryable bool
	// Soon: in the time that a node takes to boot it is known whether there will be a node after all. No other pod is to be evicted meanwhile.
	Soon bool
}

// PoolReason is the first constraint that no offer of a pool meets.
type PoolReason struct {
	Pool   string
	Reason string
}
