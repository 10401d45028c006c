package consolidation

import (
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Kind is the kind of reason why a node is kept.
type Kind string

// Kinds that callers put in Candidate.Blocked. The words Pod, Name, Message and Until are the fields of Kept that they set.
const (
	Protected    Kind = "Protected"   // do-not-disrupt or its older names, on the node or on Pod
	NotQuiet     Kind = "NotQuiet"    // consolidateAfter isn't over, Until
	Unmovable    Kind = "Unmovable"   // Pod can't be recreated elsewhere, Message says why
	BlockedByPDB Kind = "PDB"         // the PodDisruptionBudget Name allows no eviction of Pod
	Surge        Kind = "Surge"       // the Deployment Name asks to move Pod by a roll-out, Message says why that can't be made now
	Paused       Kind = "Paused"      // disruption is paused, Message
	Static       Kind = "Static"      // a static pool's node
	NotReady     Kind = "NotReady"    // not initialized, or its Node isn't Ready
	NotRepaired  Kind = "NotRepaired" // unhealthy, and tolerated or not repaired, Message
	Disrupting   Kind = "Disrupting"  // it is part of a move that has begun
	Disabled     Kind = "Disabled"    // the pool has consolidation disabled (consolidateAfter: Never), or has no policy
	OtherReason  Kind = "OtherReason" // anything else, Message
)

// Kinds that Propose finds. Capitalized words are the fields of Kept that it sets.
const (
	PolicyWhenEmpty Kind = "WhenEmpty"       // the pool's policy, and the node isn't empty
	Young           Kind = "Young"           // its first hour isn't over before Until
	Received        Kind = "Received"        // it took pods of a move, which will have paid for itself at Until
	NoPrice         Kind = "NoPrice"         // its price is unknown
	Full            Kind = "Full"            // there is no capacity anywhere for Pod, and no new node may be launched for it; Resource is short
	Dearer          Kind = "Dearer"          // it costs Price, and another place for its pods at least Cheapest; Message says why a place that is a little cheaper isn't taken
	NotWorth        Kind = "NotWorth"        // Saves is too little for Cost: it would take longer than 40 minutes to pay back
	Unbalanced      Kind = "Balanced"        // with the policy Balanced a move needs a score of Threshold, and has Score
	Paying          Kind = "Paying"          // the move costs Cost, and waiting for it has not cost as much yet: only Accrued
	Budget          Kind = "Budget"          // the disruption budget for Reason allows no more nodes
	Limit           Kind = "Limit"           // new nodes would exceed a limit of the pool Name
	TotalLimit      Kind = "TotalLimit"      // new nodes would exceed the limit of all pools together
	Flexibility     Kind = "SpotFlexibility" // only Count of Needed instance types are cheaper
	Covered         Kind = "Covered"         // the commitment Name pays for it
	RollOut         Kind = "RollOut"         // it isn't known yet whether the new nodes work, Message
	WantOfSpot      Kind = "WantOfSpot"      // bought on demand for want of spot capacity, of which there is none to return to, or not before Until
)

// Kept is the reason why a node is kept, with the details that its kind has.
type Kept struct {
	Node string
	Kind Kind
	Pod  capacity.PodRef
	Name string
	// Until is when the reason ends; zero: not known.
	Until time.Time
	// Resource is what is missing for Pod.
	Resource string
	// Price, Cheapest and Saves are in $/h, Accrued and Cost in $.
	Price, Cheapest, Saves, Accrued, Cost float64
	Score, Threshold                      float64
	Count, Needed                         int
	Reason                                Reason
	Message                               string
}

// Text returns the reason as a clause for people, such as "its pods would cost $0.30/h elsewhere, and it costs $0.20/h".
func (k *Kept) Text() string {
	switch k.Kind {
	case Protected:
		return k.about("asks not to be disrupted")
	case NotQuiet:
		return "pods came or went: consolidateAfter is over " + k.until()
	case Unmovable:
		return k.about("can't be recreated elsewhere") + k.because()
	case BlockedByPDB:
		return fmt.Sprintf("the PodDisruptionBudget %s allows no eviction of pod %s", k.Name, podName(k.Pod))
	case Surge:
		return fmt.Sprintf("Deployment %s asks to be moved by a roll-out (annotation %s), for pod %s%s", k.Name, objects.AnnotationMove, podName(k.Pod), k.because())
	case Paused:
		return "disruption is paused" + k.because()
	case Static:
		return "the pool has a fixed number of nodes"
	case NotReady:
		return "the node isn't ready" + k.because()
	case NotRepaired:
		return "the node is unhealthy" + k.because()
	case Disrupting:
		return "the node is being disrupted" + k.because()
	case Disabled:
		return "the pool has consolidation disabled"
	case PolicyWhenEmpty:
		return "the pool consolidates empty nodes only"
	case Young:
		return "the node is new: its first hour is over " + k.until()
	case Received:
		return "the node took pods of another move, which will have paid for itself " + k.until()
	}
	return k.planned()
}

// planned returns the text for reasons that a plan finds.
func (k *Kept) planned() string {
	switch k.Kind {
	case NoPrice:
		return "the price of the node is unknown"
	case Full:
		return fmt.Sprintf("there is no other place for pod %s%s", podName(k.Pod), k.short())
	case Dearer:
		return fmt.Sprintf("its pods would cost $%.4f/h elsewhere, and it costs $%.4f/h", k.Cheapest, k.Price) + k.because()
	case NotWorth:
		return fmt.Sprintf("emptying it would save $%.4f/h, which doesn't pay within %d minutes for the $%.4f that it costs to move its pods", k.Saves, int(longest.Minutes()), k.Cost)
	case Unbalanced:
		return fmt.Sprintf("emptying it has a score of %.2f, and the policy Balanced needs %.2f", k.Score, k.Threshold)
	case Paying:
		return fmt.Sprintf("emptying it would save $%.4f/h; $%.4f of $%.4f have accrued that it costs to move its pods", k.Saves, k.Accrued, k.Cost)
	case Budget:
		return fmt.Sprintf("the pool's disruption budgets allow no more nodes now for reason %s", k.Reason)
	case Limit:
		return fmt.Sprintf("new nodes would exceed the limits of pool %s", k.Name)
	case TotalLimit:
		return "new nodes would exceed the limit of all pools together (limits of ProvisionArgs)"
	case Flexibility:
		return fmt.Sprintf("replacing a spot node by another needs %d cheaper instance types, there are %d", k.Needed, k.Count)
	case Covered:
		return fmt.Sprintf("it is covered by commitment %s: replacing it would save nothing", k.Name)
	case WantOfSpot:
		return k.wantOfSpot()
	}
	return k.Message
}

func (k *Kept) about(what string) string {
	if k.Pod.Name == "" {
		return "the node " + what
	}
	return "pod " + podName(k.Pod) + " " + what
}

func (k *Kept) because() string {
	if k.Message == "" {
		return ""
	}
	return ": " + k.Message
}

func (k *Kept) short() string {
	if k.Resource == "" {
		return ""
	}
	return ", which needs more " + k.Resource + " than is free"
}

func (k *Kept) until() string {
	if k.Until.IsZero() {
		return "later"
	}
	return "at " + k.Until.UTC().Format(time.RFC3339)
}

func podName(p capacity.PodRef) string { return p.Namespace + "/" + p.Name }
