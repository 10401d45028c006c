package launch

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/wantofspot"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/planned"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// purchases is the one place where the spending guard and the limits are asked before anything is launched: for pods, static pools, probes and
// standalone NodeClaims. Safe for concurrent use.
type purchases struct {
	claims       *claimCache
	reservations *reservations.Ledger
	pending      *pending.Pods
	spending     *spending.Guard // nil: there is no guard
	namer        *namer
	clock        clock.PassiveClock
	relief       *limits.Relief
	types        func(nodeClass string) ([]*capacity.InstanceType, error)
	maxInFlight  int // caps the claims that are not initialized yet; 0: any number

	// mu is held from the question to the spending guard until the guard and the ledger have what is bought, so that no two goroutines buy
	// the same probe or spend the same dollars of a budget. It is taken before all other locks; no slow call is made under it.
	mu sync.Mutex
}

// buy reserves what a proposal asks for, and has book write it to the ledger before anything else is bought, because the next purchase reads
// the number of claims in flight from the ledger. If the node of a probe can't be bought, nothing of its plan is written: its pods stay queued.
func (b *purchases) buy(p *provisioning.Proposal, book func(claims map[string]*capacity.Claim)) provisioning.Outcome {
	want := b.wantOfSpot(p) // before the lock, because it looks at the whole catalogue; nodes that are removed from the plan later do no harm
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.reserve(p, want)
	if len(p.Plan.Nodes) > 0 || len(p.Terms.Lifted) == 0 {
		book(out.Claims)
	}
	return out
}

// reserve makes the claims of a proposal's nodes, counts them against the limits of their pools and of all pools, and records them with the
// spending guard. It removes from the plan the nodes that can't be bought: nodes that the guard stops, nodes that exceed the allowed number of
// claims in flight, and nodes that exceed a limit because it was lowered or used up after the plan was made. The filters have not verified
// that the rest of the plan holds without the removed nodes.
//
// forSpot has the IDs of planned nodes that are bought on demand because no spot capacity is available.
func (b *purchases) reserve(p *provisioning.Proposal, forSpot map[string]bool) provisioning.Outcome {
	plan, out := p.Plan, provisioning.Outcome{Claims: map[string]*capacity.Claim{}}
	asked := len(plan.Nodes)
	b.ask(p, &out)
	b.fit(p, &out)
	var made []*capacity.Claim
	var nodes []*capacity.PlannedNode // nodes[i] is the node of made[i]
	for _, n := range plan.Nodes {
		c := p.Claims[n.ID]
		if c == nil {
			c = b.claimFor(n, p.For)
			c.Spare = p.Terms.Spare
			if forSpot[n.ID] {
				c.Annotations[objects.AnnotationForWantOfSpot] = "true"
			}
			made, nodes = append(made, c), append(nodes, n)
		}
		out.Claims[n.ID] = c
	}
	over := map[string]capacity.Removal{}
	for i, err := range b.claims.Reserve(made...) {
		if err != nil {
			over[nodes[i].ID] = capacity.Removal{Message: err.Error()}
			if waits(p) {
				b.relief.Limited(nodes[i].Pool.Name)
				if errors.Is(err, capacity.ErrOverTotal) {
					b.relief.TotalLimited()
				}
			}
		}
	}
	remove(plan, over, &out)
	if p.Terms.Whole && len(plan.Nodes) < asked {
		for _, n := range plan.Nodes {
			over[n.ID] = capacity.Removal{Message: out.Why}
		}
		remove(plan, over, &out)
		plan.Placements = nil
	}
	b.record(p, out.Claims)
	left := map[string]bool{}
	for _, n := range plan.Nodes {
		left[n.ID] = true
	}
	for i, n := range nodes {
		if !left[n.ID] { // a node that is removed may take others with it whose claims are reserved already
			b.claims.Release(made[i].Name)
			delete(out.Claims, n.ID)
			continue
		}
		cp := *made[i]
		b.claims.remember(&cp)
	}
	return out
}

// fit removes the nodes that exceed the number of claims in flight.
func (b *purchases) fit(p *provisioning.Proposal, out *provisioning.Outcome) {
	if len(p.Plan.Nodes) == 0 {
		return
	}
	room, why := b.Headroom()
	if p.Terms.Moves {
		room = max(0, room-(b.maxInFlight+1)/2) // the rest is left to pods that wait
	}
	if len(p.Plan.Nodes) <= room {
		return
	}
	over := map[string]capacity.Removal{}
	for _, n := range p.Plan.Nodes[room:] {
		over[n.ID] = capacity.Removal{Message: why}
	}
	remove(p.Plan, over, out)
	if waits(p) {
		b.relief.Crowded()
	}
}

// waits reports whether pods wait for the planner to plan for them again once a limit allows it.
func waits(p *provisioning.Proposal) bool { return p.For == capacity.ForPods && !p.Terms.Moves }

// remove removes nodes from a plan and refuses their pods, for now, with the reason given by node.
func remove(plan *capacity.Plan, gone map[string]capacity.Removal, out *provisioning.Outcome) {
	for _, n := range plan.Nodes {
		if r, ok := gone[n.ID]; ok {
			out.Why = r.Message
		}
	}
	plan.RemoveNodes(gone)
}

// wantOfSpot returns the IDs of the nodes that are bought on demand for pods only because no spot capacity is available for them.
func (b *purchases) wantOfSpot(p *provisioning.Proposal) map[string]bool {
	if p.For != capacity.ForPods || !slices.ContainsFunc(p.Plan.Nodes, func(n *capacity.PlannedNode) bool { return n.CapacityType == capacity.CapacityTypeOnDemand }) {
		return nil
	}
	return wantofspot.Of(p.Plan, b.claims.Pools(b.types))
}

// claimFor returns the claim of a planned node. Its slots are filled in when the claim is written.
func (b *purchases) claimFor(n *capacity.PlannedNode, purpose capacity.Purpose) *capacity.Claim {
	offers := make([]capacity.OfferKey, 0, len(n.Offers))
	for _, o := range n.Offers {
		offers = append(offers, o.Key())
	}
	return &capacity.Claim{
		Name: b.namer.randomName(n.Pool.Name), Pool: n.Pool.Name, NodeClass: n.Pool.NodeClass, CreatedAt: b.clock.Now(),
		Labels: maps.Clone(n.Labels), Annotations: planned.Annotations(n), Taints: n.Pool.Taints, StartupTaints: n.Pool.StartupTaints,
		Requests: n.Requests, Largest: n.Largest,
		// Without a token: the batch says what may be launched, not yet which call launches it.
		LaunchBatch: &capacity.LaunchBatch{Pool: n.Pool.Name, NodeClass: n.Pool.NodeClass, CapacityType: n.CapacityType, Offers: offers, For: purpose},
	}
}

// Headroom returns how many more claims may be in flight, and why there may be no more than that.
func (b *purchases) Headroom() (n int, why string) {
	if b.maxInFlight <= 0 {
		return math.MaxInt32, ""
	}
	var flights []ledger.InFlight
	b.reservations.Read(func(l ledger.Reader) { flights = l.InFlight() })
	flying := 0
	for _, f := range flights {
		if f.Claim != "" && !f.Initialized {
			flying++
		}
	}
	return max(0, b.maxInFlight-flying), fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", flying, b.maxInFlight)
}
