package launch

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
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
	relief       *provisioning.Relief
	maxInFlight  int // caps the claims that are not initialized yet; 0: any number

	// mu is held from asking the spending guard until it has recorded what is bought, so that no two goroutines buy the same probe or
	// the same rest of a budget. It is taken before all other locks; no slow call is made under it.
	mu sync.Mutex
}

// Reserve makes the claims of a plan's nodes, by node ID, and counts them against the limits of their pools. It removes from the plan the
// nodes that can't be bought: those that exceed the number of claims in flight, and those whose pool has less left of its limits than when
// the plan was made, because others have used it or the limit was lowered.
func (b *purchases) Reserve(plan *capacity.Plan, inFlight int, terms provisioning.Terms) map[string]*capacity.Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admit(plan, terms)
	if over := len(plan.Nodes) + inFlight - b.maxInFlight; b.maxInFlight > 0 && over > 0 {
		why := fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", inFlight, b.maxInFlight)
		out := map[string]capacity.Removal{}
		for _, n := range plan.Nodes[max(0, len(plan.Nodes)-over):] {
			out[n.ID] = capacity.Removal{Message: why}
		}
		without(plan, out)
		b.relief.Crowded()
	}
	claims := map[string]*capacity.Claim{}
	var all []*capacity.Claim
	for _, n := range plan.Nodes {
		c := b.claimFor(n)
		claims[n.ID] = c
		all = append(all, c)
	}
	out := map[string]capacity.Removal{}
	for i, err := range b.claims.Reserve(all...) {
		if err != nil {
			out[plan.Nodes[i].ID] = capacity.Removal{Message: err.Error()}
			b.relief.Limited(plan.Nodes[i].Pool.Name)
		}
	}
	if len(out) > 0 {
		without(plan, out)
		// Removing a node may have removed others whose claims are reserved already.
		for id, c := range claims {
			if !slices.ContainsFunc(plan.Nodes, func(n *capacity.PlannedNode) bool { return n.ID == id }) {
				b.claims.Release(c.Name)
				delete(claims, id)
			}
		}
	}
	b.purchase(plan, claims, terms)
	return claims
}

// without removes nodes from a plan and refuses their pods, for now, with the reason given by node. What remains has not been verified
// without them.
func without(plan *capacity.Plan, out map[string]capacity.Removal) {
	gone := map[int]capacity.Removal{}
	for i, pl := range plan.Placements {
		if r, ok := out[pl.Node]; ok {
			gone[i] = r
		}
	}
	plan.Remove(gone)
}

// buyOrder records a standalone NodeClaim with the spending guard, and returns it with the offerings that the guard leaves, or the reason
// why it must not be launched.
func (b *purchases) buyOrder(c *capacity.Claim, n *capacity.PlannedNode) (*capacity.PlannedNode, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	workload := orderedAs(c)
	n, held := b.spending.ForPool(n.Pool, n, workload)
	if held.None {
		return n, held.Why
	}
	check := b.spending.Check(1, b.claims.allClaims)
	own := *n
	own.Offers = check.Spare(n.Pool, n.Offers, []guard.Workload{workload})
	n = &own
	if why, _ := check.Refuses(n.Pool, n.Offers, []guard.Workload{workload}, held.Probe, false, ""); why != "" {
		return n, why
	}
	b.spending.BuyFor(c, n.Offers, b.namer.randomName("r"), workload, held.Probe)
	return n, ""
}

// orderedAs is what the spending guard counts a NodeClaim of a user by: its controller, or what it asks for. By its name whoever makes the
// same again under another one would be a stranger each time.
func orderedAs(c *capacity.Claim) guard.Workload {
	if c.Order != nil && c.Order.Owner != "" {
		return guard.Workload{Owner: c.Order.Owner}
	}
	text := fmt.Appendln(nil, c.Pool, c.NodeClass, c.Taints, c.StartupTaints)
	for _, r := range slices.Sorted(maps.Keys(c.Requests)) {
		text = fmt.Appendln(text, r, c.Requests[r])
	}
	if c.Order != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Order.Requirements)) {
			text = fmt.Appendln(text, c.Order.Requirements[key])
		}
	}
	sum := sha256.Sum256(text)
	return guard.Workload{Owner: fmt.Sprintf("NodeClaims/%s-%x", c.NodeClass, sum[:4])}
}

// claimFor returns the claim of a planned node. Its slots are filled in when the claim is written.
func (b *purchases) claimFor(n *capacity.PlannedNode) *capacity.Claim {
	offers := make([]capacity.OfferKey, 0, len(n.Offers))
	for _, o := range n.Offers {
		offers = append(offers, o.Key())
	}
	return &capacity.Claim{
		Name: b.namer.randomName(n.Pool.Name), Pool: n.Pool.Name, NodeClass: n.Pool.NodeClass, CreatedAt: b.clock.Now(),
		Labels: maps.Clone(n.Labels), Annotations: annotations(n), Taints: n.Pool.Taints, StartupTaints: n.Pool.StartupTaints,
		Requests: n.Requests, Largest: n.Largest,
		// Without a token: the batch says what may be launched, not yet which call launches it.
		LaunchBatch: &capacity.LaunchBatch{Pool: n.Pool.Name, NodeClass: n.Pool.NodeClass, CapacityType: n.CapacityType, Offers: offers},
	}
}

// crowded returns why n more claims can't be launched now, because too many are in flight, or "".
func (b *purchases) crowded(n int) string {
	if b.maxInFlight <= 0 {
		return ""
	}
	flying := b.flying()
	if flying+n <= b.maxInFlight {
		return ""
	}
	return fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", flying, b.maxInFlight)
}

// headroom returns how many more claims may be in flight.
func (b *purchases) headroom() int {
	if b.maxInFlight <= 0 {
		return math.MaxInt32
	}
	return max(0, b.maxInFlight-b.flying())
}

// flying returns how many claims are in flight.
func (b *purchases) flying() int {
	var flights []ledger.InFlight
	b.reservations.Read(func(l ledger.Reader) { flights = l.InFlight() })
	n := 0
	for _, f := range flights {
		if f.Claim != "" && !f.Initialized {
			n++
		}
	}
	return n
}

// buyStatic records up to n nodes of a static pool with the spending guard and the pool's limits. It returns the node with the offerings
// that the guard leaves (nil: none may be launched at all), the claims, and why there are fewer than n.
func (b *purchases) buyStatic(p *capacity.Pool, node *capacity.PlannedNode, n int) (*capacity.PlannedNode, []*capacity.Claim, string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	workload := guard.Workload{Owner: "NodePool/" + p.Name}
	node, held := b.spending.ForPool(p, node, workload)
	if held.None {
		return nil, nil, held.Why
	}
	if held.Probe != nil {
		n = 1
	}
	round := b.namer.randomName("r")
	check := b.spending.Check(n, b.claims.allClaims)
	own := *node
	own.Offers = check.Spare(p, node.Offers, []guard.Workload{workload})
	node = &own
	var claims, granted []*capacity.Claim
	short := held.Why
	for range n {
		if why, _ := check.Refuses(p, node.Offers, []guard.Workload{workload}, held.Probe, false, ""); why != "" {
			short = why
			break
		}
		c := b.claimFor(node)
		c.LaunchBatch.For = capacity.ForPool
		claims = append(claims, c)
	}
	for i, err := range b.claims.Reserve(claims...) {
		if err != nil {
			short = err.Error()
			continue
		}
		c := claims[i]
		b.spending.BuyFor(c, node.Offers, round, workload, held.Probe)
		granted = append(granted, c)
		cp := *c
		b.claims.remember(&cp)
	}
	return node, granted, short
}
