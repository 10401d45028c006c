package launch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// committer carries proposals out. Safe for concurrent use.
type committer struct {
	purchases    *purchases
	reservations *reservations.Ledger
	events       provisioning.Recorder
	slots        *slotWriter
	namer        *namer
	batches      *batchLauncher
	calls        *calls
}

// maxBatch bounds how many claims share one launch call, so that a failed call affects no more than these.
const maxBatch = 100

// batch is a launch batch: identical claims that are launched by one call.
type batch struct {
	pool         *capacity.Pool
	capacityType string
	offers       []capacity.NodeOffer
	labels       map[string]string
	claims       []*capacity.Claim
	attempt      int
	// first is the number of the last attempt that was made before this batch began, by an earlier leader or by an earlier try of a
	// standalone NodeClaim; 0: none.
	first     int
	purpose   capacity.Purpose
	requester provisioning.Requester
	delay     delay
}

// needs reports whether the requester still needs the claim.
func (w *batch) needs(c *capacity.Claim) bool {
	yes, _ := w.requester.Needed(c.Name)
	return yes
}

// Commit carries a proposal out.
//
//  1. Under the purchase lock: ask the spending guard and the limits, make the claims, and write the plan to the ledger in one step.
//     What can't be bought leaves the plan.
//  2. Tell the pods, and record new reservations on claims in flight.
//  3. Launch the nodes in the background, those that are alike together.
func (co *committer) Commit(ctx context.Context, p *provisioning.Proposal) provisioning.Outcome {
	var placed []capacity.Placement
	var promised map[string][]capacity.Slot
	out := co.purchases.buy(p, func(claims map[string]*capacity.Claim) { placed, promised = co.book(p, claims) })
	launched := map[string]*capacity.PlannedNode{} // by claim
	for _, n := range p.Plan.Nodes {
		launched[out.Claims[n.ID].Name] = n
	}
	for _, pl := range placed {
		if pl.Owner == "" {
			co.events.Pod(pl.Pod, corev1.EventTypeNormal, "Nominated", nominated(pl.Node, launched[pl.Node]))
		}
	}
	for claim, slots := range promised {
		co.slots.recordSlots(ctx, claim, slots)
	}
	for _, w := range co.batchesOf(p, out.Claims) {
		co.calls.wg.Go(func() { co.batches.launch(ctx, w) })
	}
	return out
}

// book writes a plan to the ledger. It returns the placements, which name new nodes by claim, and the reservations on claims in flight.
func (co *committer) book(p *provisioning.Proposal, claims map[string]*capacity.Claim) (placed []capacity.Placement, promised map[string][]capacity.Slot) {
	planID := co.namer.randomName("p")
	placed = slices.Clone(p.Plan.Placements)
	touched := map[string]bool{}
	co.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for _, n := range p.Plan.Nodes {
			// A claim that was not made for pods stays when none needs it.
			l.AddNode(claims[n.ID].Name, template(n), provisioning.DaemonRequests(n.Daemons), p.For != capacity.ForPods, now)
		}
		for i := range placed {
			pl := &placed[i]
			if c, ok := claims[pl.Node]; ok {
				pl.Node = c.Name
			} else if there, ok := p.Existing[pl.Node]; ok {
				l.Existing(pl.Node, there.Status)
				if there.Claim != "" && !there.Status.Initialized {
					touched[there.Claim] = true
				}
			} else {
				touched[pl.Node] = true // a claim in flight
			}
		}
		if p.Place != nil {
			p.Place(l, planID, placed, now)
		}
		// Read the reservations now: one on an existing node may be fulfilled, and so be gone, in a moment.
		promised = l.AllSlots(slices.Collect(maps.Keys(touched)))
	})
	return placed, promised
}

// batchesOf divides a plan's nodes into launch batches.
func (co *committer) batchesOf(p *provisioning.Proposal, claims map[string]*capacity.Claim) (batches []*batch) {
	by := p.Requester
	if by == nil {
		by = ledgerRequester{co.reservations}
	}
	open := map[string]*batch{}
	for _, n := range p.Plan.Nodes {
		key, c := batchKey(n), claims[n.ID]
		w := open[key]
		if w == nil || len(w.claims) == maxBatch {
			w = &batch{pool: n.Pool, capacityType: n.CapacityType, offers: n.Offers, labels: n.Labels, purpose: p.For, requester: by}
			if c.LaunchBatch != nil {
				w.attempt, w.first = c.LaunchBatch.Attempt, c.LaunchBatch.Attempt
			}
			open[key] = w
			batches = append(batches, w)
		}
		w.claims = append(w.claims, c)
	}
	return batches
}

// nominated returns the text of an event about a pod that is placed on a node; n is the planned node with that claim, if it is new.
func nominated(node string, n *capacity.PlannedNode) string {
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

func annotations(n *capacity.PlannedNode) map[string]string {
	out := map[string]string{}
	if n.MinValuesRelaxed {
		out[annotationMinRelaxed] = "true"
	}
	if n.Pool.Unread {
		out[objects.AnnotationUnread] = "true"
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

func template(n *capacity.PlannedNode) *capacity.Node {
	// The ledger reserves the capacity for DaemonSet pods while the node is in flight, so Free is all that the node has.
	out := &capacity.Node{
		Labels: n.Labels, Taints: n.Pool.Taints, InFlight: true,
		Allocatable: n.Allocatable, Free: n.Allocatable.Clone(), VolumesFree: n.VolumeLimits, Kind: capacity.NodeKind{Devices: provisioning.CertainDevices(n)},
	}
	out.Kind.Boot = bootsAs(n.Pool.Name, n.Pool.NodeClass, out)
	return out
}

// bootsAs returns a string that is equal for nodes that boot alike: those of one pool and node class with the same kind of image, which
// follows from the operating system, the architecture and the devices.
func bootsAs(pool, class string, n *capacity.Node) string {
	parts := []string{pool, class, n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelWindowsBuild], n.Labels[corev1.LabelArchStable]}
	for _, r := range slices.Sorted(maps.Keys(n.Allocatable)) {
		if capacity.DeviceResource(r) {
			parts = append(parts, string(r))
		}
	}
	return strings.Join(parts, "|")
}

// batchKey returns a string that is equal for nodes that one call may launch together.
func batchKey(n *capacity.PlannedNode) string {
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

const nameAlphabet = "bcdfghjklmnpqrstvwxz2456789" // as the API server generates names: no vowels, nothing that looks alike
