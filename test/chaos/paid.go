package chaos

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// defaultRestartCost is what moving a pod costs where its pool doesn't say it: for so long it could run at the mean price of the pool's pods.
const defaultRestartCost = 10 * time.Minute

// paid is I3 as far as it can be seen from outside: until any moment the moves of a pool may not have cost more than what waiting for them
// could have cost at most, which is the price of all its nodes.
type paid struct {
	billed map[string]float64 // by pool, in $, until at
	at     time.Time
	jumped time.Duration
}

// bills counts what nodes have cost since the last time. jumped is how far clocks have been wrong, in all.
func (p *paid) bills(m *moment, jumped time.Duration) {
	if p.billed == nil {
		p.billed = map[string]float64{}
	} else {
		passed := m.at.Sub(p.at) + jumped - p.jumped
		for pool, price := range m.prices() {
			p.billed[pool] += price * passed.Hours()
		}
	}
	p.at, p.jumped = m.at, jumped
}

// prices returns what the nodes of each pool cost, in $/h.
func (m *moment) prices() map[string]float64 {
	of := map[string]float64{}
	for i := range m.instances {
		of[providerID(m.instances[i])] = m.instances[i].Price
	}
	out := map[string]float64{}
	for _, claim := range m.claims {
		if m.live[claim.Status.ProviderID] {
			out[claim.Labels[karpv1.NodePoolLabelKey]] += of[claim.Status.ProviderID]
		}
	}
	return out
}

// restarts returns what moving the pods costs at least, in $: the product counts as much for each, or more.
func (m *moment) restarts(pool *karpv1.NodePool, on []*corev1.Pod) float64 {
	each := defaultRestartCost
	if d, err := time.ParseDuration(pool.Annotations[restartCost]); err == nil {
		each = d
	}
	pods := 0
	for _, p := range m.pods {
		if node := m.nodes[p.Spec.NodeName]; node != nil && node.Labels[karpv1.NodePoolLabelKey] == pool.Name && lives(p) && !daemonic(p) {
			pods++
		}
	}
	moving := 0
	for _, p := range on {
		if p.DeletionTimestamp == nil && p.Annotations[corev1.PodDeletionCost] == "" {
			moving++
		}
	}
	return float64(moving) / float64(max(1, pods)) * m.prices()[pool.Name] * each.Hours()
}

// unpaid describes what is wrong if the moves of a pool until then have cost more than its nodes; empty: nothing.
func (e *emptyings) unpaid(r *emptied, voluntary func(claim string) bool) string {
	total := 0.0
	for _, other := range e.nodes {
		if other.pool == r.pool && !other.at.After(r.at) && !other.forced && (other == r || voluntary(other.claim)) {
			total += other.cost
		}
	}
	if r.cost == 0 || total <= r.billed {
		return ""
	}
	return fmt.Sprintf("moves of pool %s have cost $%.4f until then, and all of its nodes $%.4f", r.pool, total, r.billed)
}
