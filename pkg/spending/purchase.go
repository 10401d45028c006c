package spending

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Allowance is what the guard allows where instances are bought for no pod.
type Allowance struct {
	None  bool        // none may be bought
	Why   string      // why none, or only a probe
	Probe []guard.Key // one may be bought, as a probe of these breakers
}

// ForPool checks the purchase of instances for no pod: it returns the node with the offerings that may be bought, and the allowance.
func (g *Guard) ForPool(p *capacity.Pool, n *capacity.PlannedNode, w guard.Workload) (*capacity.PlannedNode, Allowance) {
	if g == nil {
		return n, Allowance{}
	}
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	due := g.state.breakers.Due(now, nil)
	probe := func(b *guard.Breaker) (*capacity.PlannedNode, Allowance) {
		if !slices.Contains(due, b.Key) {
			return n, Allowance{None: true, Why: b.Text()}
		}
		key := b.Key
		own := *n
		if !Probes(key, &own, []guard.Workload{w}, b.Tried) {
			return n, Allowance{None: true, Why: b.Text()}
		}
		return &own, Allowance{Why: b.Text(), Probe: []guard.Key{key}}
	}
	if b := g.state.breakers.HoldsPods(p.Name, w, now); b != nil {
		return probe(b)
	}
	var last *guard.Breaker
	free := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool {
		b := g.state.breakers.HoldsMachine(p.NodeClass, o.Type.Image, o.Offer.Zone)
		if b != nil {
			last = b
		}
		return b != nil
	})
	switch {
	case last == nil:
		return n, Allowance{}
	case len(free) == 0:
		return probe(last)
	}
	own := *n
	own.Offers = free
	return &own, Allowance{}
}

// WantedOn returns what each new node of a plan is bought for: workloads, and pods that exist. pod finds a pod by its UID.
func (g *Guard) WantedOn(plan *capacity.Plan, pod func(types.UID) *corev1.Pod) (workloads map[string][]guard.Workload, wanted map[string]map[types.UID]guard.Workload) {
	workloads, wanted = map[string][]guard.Workload{}, map[string]map[types.UID]guard.Workload{}
	if g == nil {
		return workloads, wanted
	}
	fresh := map[string]bool{}
	for _, n := range plan.Nodes {
		fresh[n.ID], wanted[n.ID] = true, map[types.UID]guard.Workload{}
	}
	type kin struct {
		class capacity.ClassKey
		owner types.UID
	}
	known := map[kin]guard.Workload{} // pods of one controller and class belong to one workload
	for _, pl := range plan.Placements {
		if !fresh[pl.Node] {
			continue
		}
		p := pl.Class.Pod
		if live := pod(pl.Pod.UID); pl.Pod.UID != "" && live != nil {
			p = live
		}
		k := kin{pl.Class.Key, objects.Controller(p)}
		w, ok := known[k]
		if !ok {
			w = g.state.workloads.owners.WorkloadOf(p, func() *capacity.Class { return pl.Class })
			known[k] = w
		}
		workloads[pl.Node] = addWorkload(workloads[pl.Node], w)
		if pl.Pod.UID != "" {
			wanted[pl.Node][pl.Pod.UID] = w
		}
	}
	return workloads, wanted
}
