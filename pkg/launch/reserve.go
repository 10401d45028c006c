package launch

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// reserve makes the claims of a plan's nodes, by the nodes' IDs, and has them counted against the limits of their pools. What can't
// be had is taken out of the plan: nodes that would exceed the number of claims in flight, and nodes whose pool has less left than it
// had when the plan was made. Others may have taken it, or the limit was lowered.
func (m *Motor) reserve(plan *capacity.Plan, inFlight int, how buying) map[string]*capacity.Claim {
	m.admit(plan, how)
	if over := len(plan.Nodes) + inFlight - m.cfg.MaxInFlight; m.cfg.MaxInFlight > 0 && over > 0 {
		why := fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", inFlight, m.cfg.MaxInFlight)
		out := map[string]string{}
		for _, n := range plan.Nodes[max(0, len(plan.Nodes)-over):] {
			out[n.ID] = why
		}
		without(plan, out)
	}
	claims := map[string]*capacity.Claim{}
	var all []*capacity.Claim
	for _, n := range plan.Nodes {
		c := m.claimFor(n)
		claims[n.ID] = c
		all = append(all, c)
	}
	out := map[string]string{}
	for i, err := range m.claims.Reserve(all...) {
		if err != nil {
			out[plan.Nodes[i].ID] = err.Error()
		}
	}
	if len(out) > 0 {
		without(plan, out)
		// With a node others may have gone that were reserved.
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

// buying is how a plan is bought.
type buying struct {
	lift   *guard.Key                  // the breaker that it probes; nil: none
	urgent bool                        // for pods of nodes that are about to be lost
	pod    func(types.UID) *corev1.Pod // finds its pods; nil: among those that wait
}

func (b *buying) pods(m *Motor) func(types.UID) *corev1.Pod {
	if b.pod != nil {
		return b.pod
	}
	return m.pending.Get
}

// admit takes out of a plan what the spending guard keeps from being bought.
func (m *Motor) admit(plan *capacity.Plan, how buying) {
	if m.spending == nil || len(plan.Nodes) == 0 {
		return
	}
	workloads, _ := m.spending.wantedOn(plan, how.pods(m))
	a := m.spending.admit(len(plan.Nodes), m.money)
	out := map[string]string{}
	for _, n := range plan.Nodes {
		if why := a.refuses(n.Pool, n.Offers, workloads[n.ID], how.lift, how.urgent); why != "" {
			out[n.ID] = why
		}
	}
	if len(out) > 0 {
		without(plan, out)
	}
}

// purchase tells the spending guard of what is about to be bought, and has the claims say what for.
func (m *Motor) purchase(plan *capacity.Plan, claims map[string]*capacity.Claim, how buying) {
	if m.spending == nil {
		return
	}
	round := m.randomName("r")
	workloads, wanted := m.spending.wantedOn(plan, how.pods(m))
	for _, n := range plan.Nodes {
		c := claims[n.ID]
		c.Purchase = &guard.Purchase{Round: round, Workloads: workloads[n.ID]}
		if how.lift != nil {
			c.Purchase.Probes = []guard.Key{*how.lift}
		}
		m.spending.buy(c, imagesOf(n.Offers), zonesOf(n.Offers), wanted[n.ID])
	}
}

// without takes nodes out of a plan and refuses their pods, for now, with the reason given by node. With a node go all pods of its
// groups, since what is left of a group might not be a valid plan.
func without(plan *capacity.Plan, out map[string]string) {
	groups := map[int]string{}
	for _, pl := range plan.Placements {
		if why, ok := out[pl.Node]; ok && pl.Group != 0 {
			groups[pl.Group] = why
		}
	}
	type reason struct {
		class *capacity.Class
		why   string
	}
	refused := map[reason]*capacity.Refusal{}
	var order []*capacity.Refusal
	used := map[string]bool{}
	kept := plan.Placements[:0]
	for _, pl := range plan.Placements {
		why, is := out[pl.Node]
		if !is && pl.Group != 0 {
			why, is = groups[pl.Group]
		}
		if !is {
			kept = append(kept, pl)
			used[pl.Node] = true
			continue
		}
		if pl.Owner != "" {
			continue
		}
		key := reason{pl.Class, why}
		if refused[key] == nil {
			refused[key] = &capacity.Refusal{Class: pl.Class, Retryable: true, Message: why}
			order = append(order, refused[key])
		}
		refused[key].Pods = append(refused[key].Pods, pl.Pod)
	}
	plan.Placements = kept
	keepNodes(plan, func(n *capacity.PlannedNode) bool { return used[n.ID] })
	for _, r := range order {
		plan.Refused = append(plan.Refused, *r)
	}
}
