package launch

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// buying is how a plan is bought.
type buying struct {
	lift   []guard.Key                 // breakers that it probes
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
		for _, key := range how.lift {
			if probes(key, n, workloads[n.ID], nil) {
				c.Purchase.Probes = append(c.Purchase.Probes, key)
			}
		}
		m.spending.buy(c, n.Offers, wanted[n.ID])
	}
}
