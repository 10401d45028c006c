package launch

import (
	"fmt"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// reserve makes the claims of a plan's nodes, by node ID, and counts them against the limits of their pools. It removes from the plan the
// nodes that can't be bought: those that exceed the number of claims in flight, and those whose pool has less left of its limits than when
// the plan was made, because others have used it or the limit was lowered.
func (m *Launcher) reserve(plan *capacity.Plan, inFlight int, how buying) map[string]*capacity.Claim {
	m.buyMu.Lock()
	defer m.buyMu.Unlock()
	m.admit(plan, how)
	if over := len(plan.Nodes) + inFlight - m.cfg.MaxInFlight; m.cfg.MaxInFlight > 0 && over > 0 {
		why := fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", inFlight, m.cfg.MaxInFlight)
		out := map[string]capacity.Removal{}
		for _, n := range plan.Nodes[max(0, len(plan.Nodes)-over):] {
			out[n.ID] = capacity.Removal{Message: why}
		}
		without(plan, out)
		m.relief.crowded()
	}
	claims := map[string]*capacity.Claim{}
	var all []*capacity.Claim
	for _, n := range plan.Nodes {
		c := m.claimFor(n)
		claims[n.ID] = c
		all = append(all, c)
	}
	out := map[string]capacity.Removal{}
	for i, err := range m.claims.Reserve(all...) {
		if err != nil {
			out[plan.Nodes[i].ID] = capacity.Removal{Message: err.Error()}
			m.relief.limited(plan.Nodes[i].Pool.Name)
		}
	}
	if len(out) > 0 {
		without(plan, out)
		// Removing a node may have removed others whose claims are reserved already.
		for id, c := range claims {
			if !slices.ContainsFunc(plan.Nodes, func(n *capacity.PlannedNode) bool { return n.ID == id }) {
				m.claims.Release(c.Name)
				delete(claims, id)
			}
		}
	}
	m.purchase(plan, claims, how)
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
