package launch

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/planned"
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
	tracker      *NodeTracker
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
	attempt      int // number of the last attempt (fleet request), counted from 1 over all tries of these claims; it is part of the token
	// first is the number of the last attempt that was made before this batch began, by an earlier leader or in an earlier try of a
	// standalone NodeClaim; 0: there was none.
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
//     What can't be bought is removed from the plan.
//  2. Tell the pods, and record new reservations on claims in flight and on those whose nodes were initialized just now.
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
			co.events.Pod(pl.Pod, corev1.EventTypeNormal, "Nominated", planned.Nominated(pl.Node, launched[pl.Node]))
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

// book writes a plan to the ledger. It returns the placements, which name new nodes by claim, and the reservations that have to survive a restart,
// by claim.
func (co *committer) book(p *provisioning.Proposal, claims map[string]*capacity.Claim) (placed []capacity.Placement, promised map[string][]capacity.Slot) {
	planID := co.namer.randomName("p")
	placed = slices.Clone(p.Plan.Placements)
	kept := co.slots.kept(placed, p.Existing)
	touched := map[string]string{} // claims on which new reservations have to be recorded, by the node's name in the plan
	// What the plan knows of an existing node may be out of date. The ledger may have forgotten the node meanwhile, because it was initialized and
	// nothing was reserved there: it hasn't heard of later changes then, and won't.
	co.tracker.states.mu.Lock()
	defer co.tracker.states.mu.Unlock()
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
				st, seen := co.tracker.states.seen[pl.Node]
				if !seen {
					st = there.Status
				}
				l.Existing(pl.Node, st)
				if claim, ok := kept[pl.Node]; ok {
					touched[pl.Node] = claim
				}
			} else {
				touched[pl.Node] = pl.Node // a claim in flight
			}
		}
		if p.Place != nil {
			p.Place(l, planID, placed, now)
		}
		// Read the reservations now: one on an existing node may be fulfilled, and so be gone, in a moment.
		promised = l.AllSlots(slices.Collect(maps.Keys(touched)))
	})
	for node, claim := range touched {
		if slots, ok := promised[node]; ok && node != claim {
			delete(promised, node)
			promised[claim] = slots
		}
	}
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
		key, c := planned.BatchKey(n), claims[n.ID]
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

func template(n *capacity.PlannedNode) *capacity.Node {
	// The ledger reserves the capacity for DaemonSet pods while the node is in flight, so Free is all that the node has.
	out := &capacity.Node{
		Labels: n.Labels, Taints: n.Pool.Taints, InFlight: true,
		Allocatable: n.Allocatable, Free: n.Allocatable.Clone(), VolumesFree: n.VolumeLimits, Kind: capacity.NodeKind{Devices: provisioning.CertainDevices(n)},
	}
	out.Kind.Boot = planned.BootsAs(n.Pool.Name, n.Pool.NodeClass, out)
	return out
}

const nameAlphabet = "bcdfghjklmnpqrstvwxz2456789" // as the API server generates names: no vowels, nothing that looks alike
