package capacity

import (
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// MaxFleetTypes is the maximum number of instance types of a planned node's offerings, as in Karpenter.
const MaxFleetTypes = 60

// Options are the planner's settings.
type Options struct {
	// NodeSurcharge is added to the price of every new node, in $/h, for disks, addresses and load that list prices omit.
	NodeSurcharge float64
	// PriceFactor multiplies the price of an instance family ("m6g": 1.1) when prices are compared; missing: 1.
	PriceFactor map[string]float64
	// Commitments are amounts of money per hour that are paid whether they are used or not (Savings Plans). View.Coverage says what is left of them.
	Commitments []Commitment
	// IgnorePreferences drops every preference before the first try (Karpenter's preferencePolicy Ignore).
	IgnorePreferences bool
	// RelaxMinValues accepts fewer values where a pool's minValues can't be met (Karpenter's minValuesPolicy BestEffort).
	RelaxMinValues bool
	// Effort is a deterministic measure of how much work may be spent on a cheaper plan (0: the fast path only). It is not time, so that
	// the same view gives the same plan; the caller converts its time budget. An effort of 1 is work that takes about a
	// microsecond. 100,000 suits pods that can wait for a tenth of a second, 1,000,000 leaves little to gain.
	Effort int
	// Forbidden are placements that the real filters have refused before: they are not proposed again.
	Forbidden []Forbidden
	// FixZone are classes whose new nodes must be in one zone although nothing that the planner knows depends on it: the real filters may
	// depend on it.
	FixZone map[ClassKey]bool
	// Explain are the UIDs of pods whose placement the plan explains.
	Explain []types.UID
}

// PriceOf returns what an instance type with this list price, in $/h, counts as when prices are compared.
func (o *Options) PriceOf(instanceType string, list float64) float64 {
	if len(o.PriceFactor) > 0 {
		family, _, _ := strings.Cut(instanceType, ".")
		if f := o.PriceFactor[family]; f > 0 && !math.IsInf(f, 1) {
			list *= f
		}
	}
	if s := o.NodeSurcharge; s > 0 && !math.IsInf(s, 1) {
		list += s
	}
	return list
}

// Plan is a decision: where each pod of the demand goes, and what has to be bought for it.
type Plan struct {
	// Nodes are the nodes to buy.
	Nodes []*PlannedNode
	// Placements are those of pods on existing, in-flight and planned nodes, in the order in which they must be bound.
	Placements []Placement
	// Refused is the demand that got no placement, with reasons.
	Refused []Refusal
	// CostPerHour is the sum of the prices of Nodes, in $/h, without surcharges and factors. LowerBound is in $/h, too: no nodes that hold the pods
	// of the new nodes can cost less; more Effort raises it. 0: unknown, for example because prices have surcharges or factors, the plan buys what
	// is paid for already (reserved capacity, or what a commitment covers), or placements were removed after the packing.
	CostPerHour, LowerBound float64
	// Explanations say why pods are placed where they are: the pods that Options.Explain names, as far as they are in the demand.
	Explanations []Explanation
}

// PlannedNode is a node to buy: a set of offerings each of which holds the pods planned for it. Nodes share their maps and slices, which
// must not be changed.
type PlannedNode struct {
	// ID is unique within the plan; it never equals the name of a node.
	ID   string
	Pool *Pool
	// CapacityType is the capacity type of all its offerings.
	CapacityType string
	// Offers are the offerings to choose from, cheapest first, with at most MaxFleetTypes types. All have the same zone if a pod of the
	// node depends on the zone.
	Offers []NodeOffer
	// Labels are those that the node will have whichever of the offerings is launched, without hostname.
	Labels map[string]string
	// Allocatable is the component-wise minimum over the offerings' types.
	Allocatable Resources
	// Largest is the component-wise maximum of the Capacity of the offerings' types; it counts against pool limits.
	Largest Resources
	// Requests is the sum of the planned pods and daemons.
	Requests Resources
	// Daemons are the DaemonSets that will run pods on this node.
	Daemons []*DaemonSet
	// VolumeLimits is the component-wise minimum over the offerings' types, by CSI driver.
	VolumeLimits map[string]int64
	// Price is the price of the first offering, in $/h.
	Price float64
	// Filled is the part of the node's price that its pods pay if each pays as much as in a plan that could buy fractions of nodes: 1 if all
	// capacity is used that is paid for, lower if some is left over or the pods need something dearer than others; 0: unknown.
	Filled float64
	Terms
}

// Terms say what is special about the purchase of a node.
type Terms struct {
	// Covered is the commitment that pays for the node; zero: none does.
	Covered PlannedUse
	// MinValuesRelaxed: the offerings have fewer values than the pool's minValues require.
	MinValuesRelaxed bool
}

// Placement is the placement of one pod. Any pod of the class may take any of its placements; they are taken in the order of the list.
type Placement struct {
	Class *Class
	// Pod is the pod. For an anticipated pod it is zero, and Owner is set.
	Pod   PodRef
	Owner types.UID
	// Node is the name of a node of the View, or the ID of a planned node.
	Node string
	// Group joins placements that depend on each other by a shared spread, affinity or gang term: none of them may be bound before the
	// nodes of all of them exist. 0: independent.
	Group int
	// Gang is the gang of the pod; nil: none.
	Gang *Gang
}

// Refusal is pods of one class without a placement.
type Refusal struct {
	Class *Class
	Pods  []PodRef
	// Reasons are per pool, in pool order.
	Reasons []PoolReason
	// Message is written for `kubectl describe pod`, and limited in length.
	Message string
	// Retryable: the reason may pass by itself (no capacity for now, pool limit, unready class).
	Retryable bool
	// Soon: within the time that a node takes to boot it will be known whether the pods get a node after all. Until then no other pod is evicted for
	// them.
	Soon bool
}

// PoolReason is the first constraint that no offering of a pool meets.
type PoolReason struct {
	Pool   string
	Reason string
}

// Explanation says why a pod is where the plan places it, with all of the plan's pods placed.
type Explanation struct {
	Pod PodRef
	// Node is the node it is placed on, as in Placement; empty: refused.
	Node string
	// Lines are sentences without a full stop: where, why not on existing nodes, why this node, why not another pool, and which
	// constraints and preferences mattered.
	Lines []string
}

// Forbidden rules out a class on a node or, if Node is empty, on new nodes of a pool.
type Forbidden struct {
	Class ClassKey
	Node  string
	Pool  string
	// With Pool: only in this zone and of this capacity type; empty: any.
	Zone, CapacityType string
	// Plugin is the filter that refused, Reason its reason as kube-scheduler words it.
	Plugin, Reason string
	// Paused: the spending guard rules the pods out there, not a filter.
	Paused bool
}

// RulesOut reports whether f, which is about new nodes of a pool, rules out this offering of the pool.
func (f *Forbidden) RulesOut(o *Offer) bool {
	return (f.Zone == "" || f.Zone == o.Zone) && (f.CapacityType == "" || f.CapacityType == o.CapacityType)
}

// Text returns the refusal in words.
func (f *Forbidden) Text() string {
	if f.Plugin == "" {
		return f.Reason
	}
	return f.Plugin + ": " + f.Reason
}
