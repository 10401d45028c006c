package records

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// KeptFor is how long after its node was initialized the reservations on a claim stay in force. For that time pods may wait for their turn in the
// scheduling queue, or for another node of their group. A pod that isn't bound there by then has most likely found another node.
const KeptFor = 5 * time.Minute

// Kept reports whether reservations on the claim's node have to survive a restart: the node isn't initialized yet, or only just.
func Kept(c *capacity.Claim, now time.Time) bool {
	return !c.Deleting && (!c.Initialized || now.Sub(c.InitializedAt) < KeptFor)
}

// Orders has each pod's place in plan order, by the pod's UID. Plan order is the order in which the filters verified the placements. The numbers go
// on from plan to plan, so if a pod was planned several times, the highest number is that of the last plan, and counts.
type Orders map[types.UID]int

// OrdersOf returns the plan orders that the claims have on record. A claim keeps the record of every reservation that was ever made on it, also of pods
// that were planned for again.
func OrdersOf(claims []*capacity.Claim) Orders {
	out := Orders{}
	for _, c := range claims {
		for _, s := range c.Slots {
			out[s.Pod.UID] = max(out[s.Pod.UID], s.Order)
		}
	}
	return out
}

// Highest returns the highest place in plan order.
func (o Orders) Highest() (n int) {
	for _, order := range o {
		n = max(n, order)
	}
	return n
}

// Node is what a claim's node has for pods.
type Node struct {
	Labels map[string]string
	Taints []corev1.Taint
	// Free is the allocatable capacity less the requests of the pods that are bound there and of the DaemonSet pods that are yet to come.
	Free capacity.Resources
}

// Holding returns the reservations on an initialized claim that are still in force, in plan order: those of pods that no later plan has placed
// elsewhere, and that still fit on the node beside the pods of the reservations before. The other pods are planned for anew. class returns the
// equivalence class of a pod, or nil if the pod doesn't wait any more.
func (o Orders) Holding(slots []capacity.Slot, n Node, class func(types.UID) *capacity.Class) (out []capacity.Slot) {
	slots = slices.SortedStableFunc(slices.Values(slots), func(a, b capacity.Slot) int { return cmp.Compare(a.Order, b.Order) })
	free := n.Free.Clone()
	for _, s := range slots {
		c := class(s.Pod.UID)
		if c == nil || s.Order < o[s.Pod.UID] || !c.Requests.Fits(free) || capacity.Untolerated(c.Tolerations, n.Taints) != nil ||
			len(c.Terms) > 0 && !slices.ContainsFunc(c.Terms, func(t capacity.Requirements) bool { return t.Match(n.Labels) }) {
			continue
		}
		free.Sub(c.Requests)
		out = append(out, s)
	}
	return out
}
