package provisioning

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Relocation plans and launches the capacity that Replacements asks for. It belongs to the planner's goroutine.
type Relocation struct {
	moves        *Replacements
	claims       Claims
	reservations *reservations.Ledger
	pending      *pending.Pods
	planning     *planning
	committer    Committer
	ownership    Ownership
	world        World
}

// Relocate plans capacity for the pods of all nodes that have to go, where it is missing:
//
//  1. Take a view in which these pods have left, and in which their nodes accept no pods.
//  2. Plan and verify their successors like any other demand.
//  3. Reserve what was found for the owners, and launch what has to be bought.
func (re *Relocation) Relocate(ctx context.Context) {
	due := re.moves.movesDue()
	if len(due) == 0 || re.ownership.Hold() != nil || re.ownership.TakesOver() || re.claims.Problem() != nil {
		return
	}
	logger := klog.FromContext(ctx)
	leaving := map[types.UID]string{} // pods without new capacity, and the node they leave
	pods := map[types.UID]*corev1.Pod{}
	var waiting []ledger.Waiting
	for _, node := range slices.Sorted(maps.Keys(due)) {
		var held map[ledger.Successor]int
		re.reservations.Read(func(l ledger.Reader) { held, _ = l.Held(node) })
		wanted, _ := re.moves.successors(due[node])
		for _, pod := range moves.Missing(wanted, held) {
			_, class, _ := re.pending.Classes.Successor(pod) // it had a class a moment ago
			leaving[pod.UID], pods[pod.UID] = node, pod
			waiting = append(waiting, ledger.Waiting{Ref: capacity.RefOf(pod), Class: class})
		}
	}
	if len(waiting) == 0 {
		return
	}
	slices.SortFunc(waiting, func(a, b ledger.Waiting) int { return cmp.Compare(a.Ref.UID, b.Ref.UID) })
	v, plan, err := re.decideMoves(ctx, waiting, pods)
	if err == nil && (len(plan.Nodes) > 0 || len(plan.Refused) > 0) && re.planning.moves.GiveUpAll() { // nodes that have to go come first
		v, plan, err = re.decideMoves(ctx, waiting, pods)
	}
	if err != nil {
		if ctx.Err() == nil {
			logger.Error(err, "No capacity could be planned for the pods of nodes that have to go")
		}
		re.moves.recordMissing(leaving, func(types.UID) string { return err.Error() })
		return
	}
	move := func(l *ledger.Ledger, id string, placements []capacity.Placement, now time.Time) {
		from := make([]string, len(placements))
		for i := range placements {
			pl := &placements[i]
			from[i] = leaving[pl.Pod.UID]
			pl.Owner, pl.Pod = objects.Controller(pods[pl.Pod.UID]), capacity.PodRef{}
		}
		l.Move(id, placements, from, now.Add(moves.Hold), now)
	}
	re.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Place: move,
		Terms: Terms{Urgent: true, Pod: func(uid types.UID) *corev1.Pod { return pods[uid] }}})
	refused := map[types.UID]string{}
	for _, r := range plan.Refused {
		for _, ref := range r.Pods {
			refused[ref.UID] = r.Message
		}
	}
	re.moves.recordMissing(leaving, func(uid types.UID) string { return refused[uid] })
	logger.V(2).Info("Planned capacity for pods of nodes that have to go", "nodes", len(due), "pods", len(waiting), "placed", len(plan.Placements),
		"newNodes", len(plan.Nodes), "dollarsPerHour", plan.CostPerHour)
}

// decideMoves makes a verified plan in a view without the pods of nodes that have to go.
func (re *Relocation) decideMoves(ctx context.Context, waiting []ledger.Waiting, pods map[types.UID]*corev1.Pod) (*View, *capacity.Plan, error) {
	v, err := re.planning.viewer.view(ctx, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("taking a view of the cluster: %w", err)
	}
	v.Demand = demand(waiting)
	re.depart(v)
	plan, err := re.planning.verified(ctx, v, func(uid types.UID) *corev1.Pod { return pods[uid] }, nil, nil)
	return v, plan, err
}

// depart changes the view and what the filters see: the pods that move are gone from the nodes that have to go, their other pods stay, and
// the disrupted taint keeps all other pods off. Commitments no longer pay for these nodes. Nodes to avoid accept no pods.
func (re *Relocation) depart(v *View) {
	gone, avoid := re.moves.movingPods()
	objects := map[string]*corev1.Node{}
	re.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
		if gone[n.Name] != nil {
			objects[n.Name] = o
		}
		return n
	})
	var leaving []string
	for i, n := range v.Nodes {
		o := objects[n.Name]
		if o == nil && !avoid[n.Name] {
			continue
		}
		left := *n
		left.Closed = true
		if o == nil {
			v.Nodes[i] = &left
			continue
		}
		leaving = append(leaving, n.Name)
		left.Pods = slices.DeleteFunc(slices.Clone(n.Pods), func(p *corev1.Pod) bool { return gone[n.Name][p.UID] })
		v.Nodes[i] = &left
		o = o.DeepCopy()
		o.Spec.Taints = append(slices.DeleteFunc(o.Spec.Taints, func(t corev1.Taint) bool { return t.Key == capacity.TaintDisrupted }),
			corev1.Taint{Key: capacity.TaintDisrupted, Effect: corev1.TaintEffectNoSchedule})
		v.Hypothetical = append(v.Hypothetical, capacity.TrialNode{Node: o, Pods: left.Pods, Instead: true})
	}
	v.Coverage = v.Coverage.Without(leaving) // what commitments pay for them soon pays for those that take their place
}
