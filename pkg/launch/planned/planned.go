package planned

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Nominated returns the text of an event about a pod that is placed on a node; n is the planned node if the node is yet to be launched, else nil.
func Nominated(node string, n *capacity.PlannedNode) string {
	if n == nil {
		return fmt.Sprintf("Planned on %s, which has free capacity", node)
	}
	text := fmt.Sprintf("Planned on new node %s of pool %s: %s in %s, %s, $%.4f/h", node, n.Pool.Name,
		n.Offers[0].Type.Name, n.Offers[0].Offer.Zone, n.CapacityType, n.Price)
	if more := len(n.Offers) - 1; more == 1 {
		text += ", or another offering"
	} else if more > 1 {
		text += fmt.Sprintf(", or one of %d other offerings", more)
	}
	return text
}

// Karpenter's annotations of a claim: an overlay has changed the price of some of its offerings or the capacity of some of its instance
// types, or it has fewer of them to choose from than its pool's minValues ask for.
const (
	annotationPriceOverlaid    = "karpenter.sh/price-overlay-applied"
	annotationCapacityOverlaid = "karpenter.sh/capacity-overlay-applied"
	annotationMinRelaxed       = "karpenter.sh/nodeclaim-min-values-relaxed"
)

// Annotations returns the annotations that the claim of a planned node gets.
func Annotations(n *capacity.PlannedNode) map[string]string {
	out := map[string]string{}
	if n.MinValuesRelaxed {
		out[annotationMinRelaxed] = "true"
	}
	if n.Pool.Unread {
		out[objects.AnnotationUnread] = "true"
	}
	if share := certainShare(n); share < 1 {
		out[objects.AnnotationCertainMemory] = strconv.FormatFloat(share, 'f', 3, 64)
	}
	for i := range n.Offers {
		if n.Offers[i].Offer.PriceOverlaid {
			out[annotationPriceOverlaid] = "true"
		}
		if n.Offers[i].Type.CapacityOverlaid {
			out[annotationCapacityOverlaid] = "true"
		}
	}
	return out
}

// Below fewTypes instance types Karpenter warns when it launches on demand although spot capacity is allowed
// (instanceTypeFlexibilityThreshold in its AWS provider).
const fewTypes = 5

// FewTypes returns the text of a warning about a launch from these offerings for want of spot capacity; empty: there are enough types to choose from.
func FewTypes(offers []capacity.NodeOffer) string {
	types := map[string]bool{}
	for i := range offers {
		types[offers[i].Type.Name] = true
	}
	if len(types) >= fewTypes {
		return ""
	}
	return fmt.Sprintf("no spot capacity is available for pods that may use it, and the number of instance types to choose from on demand is %d; allow at least %d, so that more spot capacity comes into question and launches fail less often",
		len(types), fewTypes)
}

// ForWantOfSpot reports whether a claim's node is bought on demand only because no spot capacity is available.
func ForWantOfSpot(c *capacity.Claim) bool {
	return c.Annotations[objects.AnnotationForWantOfSpot] == "true"
}

// certainShare returns which share of the memory for pods a node has in any case, whichever of its offerings is bought.
func certainShare(n *capacity.PlannedNode) float64 {
	share := 1.0
	for i := range n.Offers {
		t := n.Offers[i].Type
		if all := t.Allocatable[corev1.ResourceMemory]; t.CertainMemory > 0 && all > 0 {
			share = min(share, math.Floor(1000*float64(t.CertainMemory)/float64(all))/1000)
		}
	}
	return share
}

// Memory returns what is known of a Node's memory for pods; registered: its kubelet has registered. A kubelet may post its status before
// that, or create the Node, which lacks the NodeClaim's annotations until it is registered.
func Memory(n *corev1.Node, registered bool) nodestatus.Memory {
	out := nodestatus.Memory{Posted: registered || objects.Posted(n)}
	if n.Annotations[objects.AnnotationUnread] == "true" {
		out.Certain = nodestatus.NothingCertain
		return out
	}
	share, err := strconv.ParseFloat(n.Annotations[objects.AnnotationCertainMemory], 64)
	noted := err == nil && share >= 0 && share < 1 // NaN is neither
	madeByKubelet := !registered && len(n.OwnerReferences) == 0
	switch {
	case out.Posted && (noted || madeByKubelet):
		share = 1
	case !noted:
		return out
	}
	out.Certain = max(1, int64(share*float64(n.Status.Allocatable.Memory().Value())))
	return out
}

// BootsAs returns a string that is equal for nodes that boot alike: those of one pool and node class with the same kind of image, which
// follows from the operating system, the architecture and the devices.
func BootsAs(pool, class string, n *capacity.Node) string {
	parts := []string{pool, class, n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelWindowsBuild], n.Labels[corev1.LabelArchStable]}
	for _, r := range slices.Sorted(maps.Keys(n.Allocatable)) {
		if capacity.DeviceResource(r) {
			parts = append(parts, string(r))
		}
	}
	return strings.Join(parts, "|")
}

// BatchKey returns a string that is equal for nodes that one call may launch together.
func BatchKey(n *capacity.PlannedNode) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s|%s|", n.Pool.Name, n.CapacityType)
	for _, o := range n.Offers {
		fmt.Fprintf(&b, "%v,", o.Key())
	}
	for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
		fmt.Fprintf(&b, "|%s=%s", k, n.Labels[k])
	}
	return b.String()
}
