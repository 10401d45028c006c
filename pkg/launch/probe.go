package launch

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// prober buys the probes of the spending guard. It belongs to the planner's goroutine.
type prober struct {
	claims       *claimCache
	reservations *reservations.Ledger
	pending      *pending.Pods
	spending     *Spending
	namespaces   *Namespaces
	gangs        *gangPlans
	planning     *planning
	purchases    *purchases
	committer    *committer
	refusals     *refusals
	ownership    *Ownership
	heldFrom     map[guard.Key]int // at which pending pod the next search for a probe begins
}

// probePods is how many waiting pods a plan for a probe considers.
const probePods = 50

// probe buys the probes that are due: one instance for each open breaker, for pods that wait because of it.
//
//  1. Choose waiting pods that the breaker stops, one of each class.
//  2. Plan for them as if this breaker, and others that are due, were closed: two breakers that stop the same pods would
//     otherwise wait for each other.
//  3. Plan again for the pods of one new node alone (or for their gang), so that one instance is bought.
//  4. Write that plan to the ledger and launch it like any other.
func (p *prober) probe(ctx context.Context) {
	if p.spending == nil || p.ownership.hold() != "" || p.ownership.takesOver() || p.claims.Problem() != "" {
		return
	}
	for _, key := range p.spending.due() {
		if due := p.spending.due(); ctx.Err() == nil && slices.Contains(due, key) { // one probe may have served several
			p.probeOf(ctx, key, due)
		}
	}
}

func (p *prober) probeOf(ctx context.Context, key guard.Key, due []guard.Key) {
	logger := klog.FromContext(ctx)
	waiting := p.heldBack(key)
	if len(waiting) == 0 {
		p.spending.fruitless(key)
		return
	}
	v, plan, chosen, err := p.planProbe(ctx, key, due, waiting)
	if err != nil {
		logger.Error(err, "No instance could be planned to probe a breaker of the spending guard", "breaker", key.String())
		p.spending.fruitless(key)
		return
	}
	if chosen == nil {
		p.spending.fruitless(key)
		return
	}
	if len(plan.Nodes) > 1 {
		alone, gang := aloneOn(plan, chosen, waiting, p.pending.Get)
		if v, plan, chosen, err = p.planProbe(ctx, key, due, alone); err != nil || chosen == nil || len(plan.Nodes) > 1 && !gang {
			p.spending.fruitless(key)
			return
		}
	}
	for _, pl := range plan.Placements {
		p.reservations.Join(pl.Pod, pl.Class) // only pods that wait for a plan get reservations
	}
	claims := p.purchases.reserve(plan, len(v.inFlight), buying{lift: due, probe: key})
	if len(plan.Nodes) == 0 {
		p.spending.fruitless(key)
		for _, r := range plan.Refused {
			p.refusals.refusal(ctx, r)
		}
		return
	}
	batches := p.committer.book(ctx, v, plan, claims)
	logger.V(2).Info("Launching a probe", "breaker", key.String(), "nodes", len(plan.Nodes), "pods", len(plan.Placements), "dollarsPerHour", plan.CostPerHour)
	p.committer.launch(ctx, batches)
}

// heldBack returns waiting pods that the breaker may stop, one of each class, but all members of a gang. For a pool-wide breaker, pods of
// workloads that have not failed come first: the failures may be due to the others only.
func (p *prober) heldBack(key guard.Key) []ledger.Waiting {
	var out, failing []ledger.Waiting
	var members []guard.Workload
	if key.PoolWide() {
		members = p.spending.members(key)
	}
	seen := map[capacity.ClassKey]bool{}
	all := p.pending.All()
	from := 0
	if p.heldFrom[key] < len(all) {
		from = p.heldFrom[key]
	}
	delete(p.heldFrom, key)
	for i := range all {
		pod := all[(from+i)%len(all)]
		if len(out) >= probePods {
			// If none of these leads to an instance, the next probe considers the others: pods that fit nowhere may be the oldest.
			p.heldFrom[key] = (from + i) % len(all)
			break
		}
		if !p.reservations.Refused(pod.UID) || p.namespaces.mayLaunch(pod.Namespace) != nil || pod.Status.NominatedNodeName != "" {
			continue
		}
		class, err := p.pending.Classes.Class(pod)
		if err != nil || seen[class.Key] && pending.GroupOf(pod) == (pending.Group{}) {
			continue
		}
		if !key.Machine() && !key.PoolWide() && p.spending.workloadOf(pod) != key.Workload {
			continue
		}
		seen[class.Key] = true
		w := ledger.Waiting{Ref: capacity.RefOf(pod), Class: class}
		if len(members) > 0 && slices.Contains(members, p.spending.workloadOf(pod)) {
			if len(failing) < probePods {
				failing = append(failing, w)
			}
			continue
		}
		out = append(out, w)
	}
	return append(out, failing[:min(len(failing), probePods-len(out))]...)
}

// planProbe makes a verified plan as if the breakers that are due were closed. It returns that plan and the new node of it that would probe
// the breaker of key; nil: no new node would.
func (p *prober) planProbe(ctx context.Context, key guard.Key, due []guard.Key, waiting []ledger.Waiting) (*view, *capacity.Plan, *capacity.PlannedNode, error) {
	v, plan, err := p.planning.decide(ctx, waiting, p.gangs.gangsOf(ctx, waiting), due)
	if err != nil {
		return nil, nil, nil, err
	}
	workloads, _ := p.spending.wantedOn(plan, p.pending.Get)
	tried := p.spending.tried(key)
	for _, n := range plan.Nodes {
		if probes(key, n, workloads[n.ID], tried) {
			return v, plan, n, nil
		}
	}
	return v, plan, nil, nil
}

// probes reports whether buying the node would probe the breaker. For a breaker of machine faults it keeps of the node's offerings only
// those that the breaker stops, and of these those in zones where no instance has failed, or else in the zone whose failure is the oldest
// (tried).
func probes(key guard.Key, n *capacity.PlannedNode, workloads []guard.Workload, tried []string) bool {
	switch {
	case !key.Machine():
		return n.Pool.Name == key.Pool && (key.PoolWide() || slices.Contains(workloads, key.Workload))
	case n.Pool.NodeClass != key.Class:
		return false
	}
	left := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool {
		return !heldBy(key, &o)
	})
	if len(left) == 0 {
		return false
	}
	n.Offers = left
	for len(tried) > 0 {
		if fresh := slices.DeleteFunc(slices.Clone(left), func(o capacity.NodeOffer) bool { return slices.Contains(tried, o.Offer.Zone) }); len(fresh) > 0 {
			n.Offers = fresh
			break
		}
		tried = tried[1:]
	}
	return true
}

// spares removes from a node the offerings that a breaker of machine faults stops, if others are left. It returns true if it removed any:
// the node then doesn't probe the breaker.
func spares(key guard.Key, n *capacity.PlannedNode) bool {
	if !key.Machine() || n.Pool.NodeClass != key.Class {
		return false
	}
	free := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool { return heldBy(key, &o) })
	if len(free) == 0 || len(free) == len(n.Offers) {
		return false
	}
	n.Offers = free
	return true
}

// heldBy reports whether a breaker of machine faults of the node's class stops an offering.
func heldBy(key guard.Key, o *capacity.NodeOffer) bool {
	return (key.Image == "" || o.Type.Image == key.Image) && (key.Zone == "" || o.Offer.Zone == key.Zone)
}

// tried returns the zones in which instances of the breaker have failed, the latest last.
func (s *Spending) tried(key guard.Key) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.guard.Breakers() {
		if b.Key == key {
			return slices.Clone(b.Tried)
		}
	}
	return nil
}

// members returns the workloads whose failures opened a pool-wide breaker.
func (s *Spending) members(key guard.Key) []guard.Workload {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.guard.Breakers() {
		if b.Key == key {
			return slices.Clone(b.Members)
		}
	}
	return nil
}

// aloneOn returns the first pod planned on the node, or all waiting members of its gang.
func aloneOn(plan *capacity.Plan, n *capacity.PlannedNode, waiting []ledger.Waiting, pod func(types.UID) *corev1.Pod) (out []ledger.Waiting, gang bool) {
	group := pending.Group{}
	for _, pl := range plan.Placements {
		if pl.Node != n.ID {
			continue
		}
		if p := pod(pl.Pod.UID); p != nil {
			group = pending.GroupOf(p)
		}
		if group == (pending.Group{}) {
			return slices.DeleteFunc(slices.Clone(waiting), func(w ledger.Waiting) bool { return w.Ref.UID != pl.Pod.UID }), false
		}
		break
	}
	return slices.DeleteFunc(slices.Clone(waiting), func(w ledger.Waiting) bool {
		p := pod(w.Ref.UID)
		return p == nil || pending.GroupOf(p) != group
	}), true
}

// fruitless records that no pod waits for a probe of the breaker, or none can be planned: the breaker is checked again in a while, or when
// it stops pods.
func (s *Spending) fruitless(key guard.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle[key] = s.clock.Now()
}

// idleFor is how long a breaker that no pod waits for is not checked.
const idleFor = 30 * time.Second

// due returns the breakers for which a probe may be bought now.
func (s *Spending) due() []guard.Key {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	return s.guard.Due(now, func(k guard.Key) bool { return now.Sub(s.idle[k]) < idleFor })
}

// change tells the guard that something has changed that the matching breakers may depend on.
func (s *Spending) change(match func(guard.Key) bool, forced bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.guard.Changed(match, forced, s.clock.Now())
	for _, b := range s.guard.Breakers() {
		if match(b.Key) {
			s.dirty[guard.OwnerOf(b.Key)] = true
		}
	}
}
