package provisioning

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// Probes buys the probes of the spending guard. It belongs to the planner's goroutine.
type Probes struct {
	claims       Claims
	reservations *reservations.Ledger
	pending      *pending.Pods
	spending     *spending.Guard
	namespaces   *Namespaces
	gangs        *gangPlans
	planning     *planning
	committer    Committer
	refusals     *Refusals
	ownership    Ownership
	triggers     *Triggers
	heldFrom     map[guard.Key]int // index in pending.All of the pod at which the next search for a breaker's probe begins
}

// probePods is how many waiting pods a plan for a probe considers.
const probePods = 50

// Probe buys the probes that are due: one instance for each open breaker, for pods that wait because of it.
//
//  1. Choose waiting pods that the breaker stops, one of each class.
//  2. Plan for them as if this breaker, and others that are due, were closed: two breakers that stop the same pods would
//     otherwise wait for each other.
//  3. Plan again for the pods of one new node alone (or for their gang), so that one instance is bought.
//  4. Commit that plan like any other.
func (p *Probes) Probe(ctx context.Context) {
	if p.spending == nil || p.ownership.Hold() != nil || p.ownership.TakesOver() || p.claims.Problem() != nil {
		return
	}
	for _, key := range p.spending.Due() {
		if due := p.spending.Due(); ctx.Err() == nil && slices.Contains(due, key) { // one probe may have served several
			p.probeOf(ctx, key, due)
		}
	}
}

func (p *Probes) probeOf(ctx context.Context, key guard.Key, due []guard.Key) {
	logger := klog.FromContext(ctx)
	defer p.triggers.reopenIfChanged()()
	waiting := p.heldBack(key)
	if len(waiting) == 0 {
		p.spending.Fruitless(key)
		return
	}
	v, plan, chosen, err := p.planProbe(ctx, key, due, waiting)
	if err != nil {
		logger.Error(err, "No instance could be planned to probe a breaker of the spending guard", "breaker", key.String())
		p.spending.Fruitless(key)
		return
	}
	if chosen == nil {
		p.spending.Fruitless(key)
		return
	}
	if _, without := p.planning.demandFirst(ctx, v, plan, waiting, p.gangs.gangsOf(ctx, waiting), due); without != plan {
		p.triggers.reopen() // the next round places the pods where moves were given up; a probe that is due after that is for the others
		p.spending.Fruitless(key)
		return
	}
	if len(plan.Nodes) > 1 {
		alone, gang := aloneOn(plan, chosen, waiting, p.pending.Get)
		if v, plan, chosen, err = p.planProbe(ctx, key, due, alone); err != nil || chosen == nil || len(plan.Nodes) > 1 && !gang {
			p.spending.Fruitless(key)
			return
		}
	}
	for _, pl := range plan.Placements {
		p.reservations.Join(pl.Pod, pl.Class) // only pods that wait for a plan get reservations
	}
	p.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Place: (*ledger.Ledger).Commit, Terms: Terms{Lifted: due, Probe: key}})
	if len(plan.Nodes) == 0 {
		p.spending.Fruitless(key)
		for _, r := range plan.Refused {
			p.refusals.refusePlanned(ctx, r)
		}
		return
	}
	logger.V(2).Info("Launching a probe", "breaker", key.String(), "nodes", len(plan.Nodes), "pods", len(plan.Placements), "dollarsPerHour", plan.CostPerHour)
}

// heldBack returns waiting pods that the breaker may stop, one of each class, but all members of a gang. For a pool-wide breaker, pods of
// workloads that have not failed come first: the failures may be due to the others only.
func (p *Probes) heldBack(key guard.Key) []ledger.Waiting {
	var out, failing []ledger.Waiting
	var members []guard.Workload
	if key.PoolWide() {
		members = p.spending.Members(key)
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
		if !p.reservations.Refused(pod.UID) || p.namespaces.MayLaunch(pod.Namespace) != nil || pod.Status.NominatedNodeName != "" {
			continue
		}
		class, err := p.pending.Classes.Class(pod)
		if err != nil || seen[class.Key] && pending.GroupOf(pod) == (pending.Group{}) {
			continue
		}
		if !key.Machine() && !key.PoolWide() && p.spending.WorkloadOf(pod) != key.Workload {
			continue
		}
		seen[class.Key] = true
		w := ledger.Waiting{Ref: capacity.RefOf(pod), Class: class}
		if len(members) > 0 && slices.Contains(members, p.spending.WorkloadOf(pod)) {
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
func (p *Probes) planProbe(ctx context.Context, key guard.Key, due []guard.Key, waiting []ledger.Waiting) (*View, *capacity.Plan, *capacity.PlannedNode, error) {
	v, plan, err := p.planning.decide(ctx, waiting, p.gangs.gangsOf(ctx, waiting), due)
	if err != nil {
		return nil, nil, nil, err
	}
	workloads, _ := p.spending.WantedOn(plan, p.pending.Get)
	tried := p.spending.Tried(key)
	for _, n := range plan.Nodes {
		if spending.Probes(key, n, workloads[n.ID], tried) {
			return v, plan, n, nil
		}
	}
	return v, plan, nil, nil
}

// aloneOn returns the pods that a probe of the node is planned for alone: the first pod planned on it, or all waiting members of that pod's
// gang.
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
