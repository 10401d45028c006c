package disruption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// begin prepares the nodes of a move for the drain:
//
//  1. All capacity is reserved on initialized nodes, which don't cost more than they may.
//  2. Disruption budgets, PodDisruptionBudgets and the brake allow it.
//  3. Taint: other schedulers bind nothing there any more; ours has bound nothing there since the reservation.
//  4. Read the pods from the API: everything that was bound before is there. None of them forbids the move.
//  5. Pods that ask for it are replaced by a roll-out of their Deployments, once. The others wait for that.
//  6. Begin: there is capacity for all of these pods, and from now on it is not given to others.
//
// missing is what the move has to wait for; nil: it may be drained. The error says why it can't be made any more.
func (v *moves) begin(ctx context.Context, s *cluster, mv *move, now time.Time) (missing, err error) {
	if missing, err := v.ready(s, mv, now); missing != nil || err != nil {
		return missing, err
	}
	if err, never := v.budgets.refuse(s, mv); err != nil {
		if never {
			return nil, err
		}
		return err, nil
	}
	if v.terminations.brake.Wait(now) > 0 {
		return fmt.Errorf("%d nodes have been terminated within a minute (maxTerminationsPerMinute)", v.terminations.brake.PerMinute()), nil
	}
	for _, src := range mv.sources {
		src.tainted = true
		if err := v.cordons.nodes.Disrupt(ctx, src.node); err != nil {
			return fmt.Errorf("tainting node %s: %w", src.node.Name, err), nil
		}
	}
	live, all := map[string][]*corev1.Pod{}, []*corev1.Pod(nil)
	for _, src := range mv.sources {
		bound, err := v.bound.Live(ctx, src.node.Name)
		if err != nil {
			return err, nil
		}
		if err := v.forbidden(src, bound, mv.drifted(), now); err != nil {
			return nil, err
		}
		live[src.node.Name], all = moving(src.candidate, mv.surging.without(bound), mv.drifted(), now), append(all, bound...)
		src.pods = max(src.pods, len(live[src.node.Name]))
	}
	if missing, err := v.surge(ctx, mv, all, live, now); missing != nil || err != nil {
		return missing, err
	}
	if err := v.planner.Begin(mv.Key, live); err != nil {
		return nil, err
	}
	mv.begun = true
	return nil, nil
}

// ready reports whether all capacity for a move is there, with nothing in the way of the drain. missing and err mean what they mean for begin.
func (v *moves) ready(s *cluster, mv *move, now time.Time) (missing, err error) {
	leaving := map[string][]*corev1.Pod{}
	pods, all := 0, []*corev1.Pod(nil)
	var blocked error
	blocking := v.rules.Blocked
	if mv.surging.begun() { // what the roll-outs leave is evicted
		blocking = v.rules.Unevictable
	}
	if err := v.rules.Budgets.Read(); err != nil {
		return nil, err
	}
	for _, src := range mv.sources {
		bound, err := v.bound.Cached(src.node.Name)
		if err != nil {
			return nil, err
		}
		if err := v.forbidden(src, bound, mv.drifted(), now); err != nil {
			return nil, err
		}
		deadline := mv.drifted() && hasDeadline(src.candidate)
		rest := mv.surging.without(bound)
		if k := blocking(v.rules.Look(rest), now); k != nil && blocked == nil && !deadline {
			blocked = errors.New(k.Text())
		}
		leaving[src.node.Name] = moving(src.candidate, rest, mv.drifted(), now)
		pods, all = pods+len(leaving[src.node.Name]), append(all, bound...)
	}
	if pods == 0 && !mv.surging.begun() {
		return nil, errors.New("its pods have ended meanwhile")
	}
	ready, err := v.planner.Ready(mv.Key, leaving)
	if err != nil {
		return nil, err
	}
	if !ready {
		return errLaunching, nil
	}
	if err := v.dearer(s, mv); err != nil && !mv.surging.begun() { // after a surge the price doesn't matter: new pods run there
		return nil, err
	}
	if missing, err := v.receiving(s, mv); missing != nil || err != nil {
		return missing, err
	}
	if missing := v.surged(mv, all, now); missing != nil {
		return missing, nil
	}
	return blocked, nil
}

// receiving returns whether all nodes that a move's pods go to can take them now. missing and err mean what they mean for begin.
func (v *moves) receiving(s *cluster, mv *move) (missing, err error) {
	names := mv.Receivers()
	for _, id := range slices.Sorted(maps.Keys(mv.Claims)) {
		m := s.byName[mv.Claims[id]]
		if m == nil {
			continue
		}
		// Reservations are made from the scheduler's cache, which may show a Node before this package's cache does.
		if _, err := s.nodes.Get(m.claim.Status.NodeName); err != nil && m.claim.DeletionTimestamp == nil && !v.terminations.deleted[m.uid()] {
			missing = fmt.Errorf("the Node of NodeClaim %s, which takes its pods, isn't there yet", m.claim.Name)
			continue
		}
		names = append(names, m.claim.Status.NodeName)
	}
	for _, name := range names {
		n, getErr := s.nodes.Get(name)
		m := s.byNode[name]
		switch {
		case getErr != nil:
			return nil, fmt.Errorf("node %s, which takes its pods, is gone", name)
		case n.DeletionTimestamp != nil || m != nil && (m.claim.DeletionTimestamp != nil || v.terminations.deleted[m.uid()]):
			return nil, fmt.Errorf("node %s, which takes its pods, is being deleted", name)
		case m != nil && v.replacements.begun[m.uid()] != nil:
			return nil, fmt.Errorf("node %s, which takes its pods, has to end", name)
		case !objects.Ready(n) || n.Spec.Unschedulable:
			missing = fmt.Errorf("node %s, which takes its pods, isn't Ready, or is cordoned", name)
		}
	}
	return missing, nil
}

// dearer returns an error if a move saves nothing: the nodes that were launched for it cost as much as those that it empties cost now, or as
// they did when it was planned. It also returns one if a price is unknown.
func (v *moves) dearer(s *cluster, mv *move) error {
	if len(mv.Claims) == 0 || mv.drifted() || math.IsInf(mv.Ceiling, 1) {
		return nil
	}
	ceiling := 0.0
	for _, src := range mv.sources {
		price, known := v.price(src.claim)
		if !known {
			return fmt.Errorf("the price of NodeClaim %s is unknown now", src.claim.Name)
		}
		ceiling += price
	}
	if ceiling = min(ceiling, mv.Ceiling); mv.forced() {
		ceiling = mv.Ceiling
	}
	sum := 0.0
	for _, id := range slices.Sorted(maps.Keys(mv.Claims)) {
		name := mv.Claims[id]
		m := s.byName[name]
		if m == nil {
			return fmt.Errorf("NodeClaim %s, which was launched for it, is gone", name)
		}
		price, known := v.price(m.claim)
		if !known {
			return fmt.Errorf("the price of NodeClaim %s, which was launched for it, is unknown", name)
		}
		sum += price
	}
	if sum >= ceiling*(1-1e-9) {
		return fmt.Errorf("the nodes that were launched for it cost $%.4f/h, and it saves nothing above $%.4f/h", sum, ceiling)
	}
	return nil
}

// impossible returns why a move that has not begun can't be made any more.
func (v *moves) impossible(mv *move) error {
	for _, src := range mv.sources {
		switch {
		case src.gone || src.claim.DeletionTimestamp != nil || v.terminations.deleted[src.uid()]:
			return fmt.Errorf("NodeClaim %s was deleted", src.claim.Name)
		case src.node == nil || src.node.DeletionTimestamp != nil:
			return fmt.Errorf("the Node of NodeClaim %s was deleted", src.claim.Name)
		case src.pool == nil || src.pool.DeletionTimestamp != nil:
			return fmt.Errorf("the NodePool of NodeClaim %s was deleted", src.claim.Name)
		case paused(src.candidate):
			return fmt.Errorf("disruption of NodePool %s is paused", src.pool.Name)
		case v.replacements.begun[src.uid()] != nil:
			return fmt.Errorf("node %s has to end, and is being replaced", src.node.Name)
		case mv.forced():
		case src.pool.Spec.Disruption.ConsolidateAfter.Duration == nil:
			return fmt.Errorf("NodePool %s doesn't consolidate any more", src.pool.Name)
		case src.pool.Spec.Disruption.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty:
			return fmt.Errorf("NodePool %s consolidates empty nodes only now", src.pool.Name)
		}
	}
	if r := v.budgets.reasons.of(mv.Reason); r != nil {
		return r.over(mv)
	}
	return nil
}

// forbidden returns an error if one of the pods, or the node itself, doesn't let the node be emptied.
func (v *moves) forbidden(src *source, bound []*corev1.Pod, drifted bool, now time.Time) error {
	if err := protected(src.candidate, bound, now, drifted); err != nil {
		return fmt.Errorf("node %s: %w", src.node.Name, err)
	}
	if k := v.rules.Unmovable(v.rules.Look(bound), now); k != nil {
		return fmt.Errorf("node %s: %s", src.node.Name, k.Text())
	}
	return nil
}
