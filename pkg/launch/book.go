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
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// committer writes plans to the ledger and launches them.
type committer struct {
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

// Book gives each planned node the name of its claim and writes the placements to the ledger by commit. claims holds the claims of the plan's
// nodes by node ID. The func that it returns launches them in the background.
func (co *committer) Book(ctx context.Context, v *provisioning.View, plan *capacity.Plan, claims map[string]*capacity.Claim, commit func(*ledger.Ledger, string, []capacity.Placement, time.Time)) (launch func()) {
	names := map[string]string{}
	var batches []*batch
	open := map[string]*batch{}
	for _, n := range plan.Nodes {
		c := claims[n.ID]
		names[n.ID] = c.Name
		key := batchKey(n)
		w := open[key]
		if w == nil || len(w.claims) == maxBatch {
			w = &batch{pool: n.Pool, capacityType: n.CapacityType, offers: n.Offers, labels: n.Labels, requester: ledgerRequester{co.reservations}}
			open[key] = w
			batches = append(batches, w)
		}
		w.claims = append(w.claims, c)
	}
	planID := co.namer.randomName("p")
	touched := map[string]bool{}
	var promised map[string][]capacity.Slot
	co.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for _, n := range plan.Nodes {
			l.AddNode(names[n.ID], template(n), provisioning.DaemonRequests(n.Daemons), false, now)
		}
		placements := slices.Clone(plan.Placements)
		for i := range placements {
			pl := &placements[i]
			if name, ok := names[pl.Node]; ok {
				pl.Node = name
			} else if st, ok := v.Status[pl.Node]; ok {
				l.Existing(pl.Node, st)
				if claim := v.ClaimOf[pl.Node]; claim != "" && !st.Initialized {
					touched[claim] = true
				}
			} else {
				touched[pl.Node] = true // a claim in flight
			}
		}
		commit(l, planID, placements, now)
		// Read the reservations now: one on an existing node may be fulfilled, and so be gone, in a moment.
		promised = l.AllSlots(slices.Collect(maps.Keys(touched)))
	})
	for _, pl := range plan.Placements {
		if pl.Owner == "" {
			co.events.Pod(pl.Pod, corev1.EventTypeNormal, "Nominated", nominated(plan, pl, names))
		}
	}
	for claim, slots := range promised {
		co.slots.recordSlots(ctx, claim, slots)
	}
	return func() {
		for _, w := range batches {
			co.calls.wg.Go(func() { co.batches.launch(ctx, w) })
		}
	}
}

func nominated(plan *capacity.Plan, pl capacity.Placement, names map[string]string) string {
	for _, n := range plan.Nodes {
		if n.ID == pl.Node {
			text := fmt.Sprintf("Planned on new node %s of pool %s: %s in %s, %s, $%.4f/h", names[n.ID], n.Pool.Name,
				n.Offers[0].Type.Name, n.Offers[0].Offer.Zone, n.CapacityType, n.Price)
			if more := len(n.Offers) - 1; more > 0 {
				text += fmt.Sprintf(", or another offering (%d)", more)
			}
			return text
		}
	}
	return fmt.Sprintf("Planned on %s, which has free capacity", pl.Node)
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
		Allocatable: n.Allocatable, Free: n.Allocatable.Clone(), VolumesFree: n.VolumeLimits,
	}
	out.Boot = bootsAs(n.Pool.Name, n.Pool.NodeClass, out)
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
