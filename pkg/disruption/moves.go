package disruption

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/disruptionmetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

// moves makes the moves for which capacity is reserved. Only the goroutine that makes the passes uses it.
type moves struct {
	planner      Consolidation // nil: there are no moves
	price        func(*karpv1.NodeClaim) (dollarsPerHour float64, known bool)
	cordons      *cordons
	terminations *terminations
	bound        nodepods.Reader
	rules        *podrules.Rules
	replacements *replacements
	budgets      *moveBudgets
	kept         *keptNodes
	rollOuts     *rollOuts
	recorder     events.EventRecorder
	open         openMoves
	memory       moveMemory
}

// openMoves are the moves that have not ended, in the order in which they were reserved.
type openMoves struct {
	list  []*move
	byUID map[string]*move // by the UIDs of their nodes' claims
}

func (o *openMoves) add(mv *move) {
	o.list = append(o.list, mv)
	for _, src := range mv.sources {
		o.byUID[src.uid()] = mv
	}
}

func (o *openMoves) remove(mv *move) {
	o.list = slices.DeleteFunc(o.list, func(other *move) bool { return other == mv })
	maps.DeleteFunc(o.byUID, func(_ string, other *move) bool { return other == mv })
}

// has reports whether a claim's node is in a move; begun, whether that has begun.
func (v *moves) has(uid string) bool { return v.open.byUID[uid] != nil }

func (v *moves) begun(uid string) bool {
	mv := v.open.byUID[uid]
	return mv != nil && mv.begun
}

// occupied returns what keeps a node out of a new move: something is being done to it, or emptying it has failed a short time ago; nil: nothing.
// forced: the new move would be for a moveReason.
func (v *moves) occupied(m *candidate, forced bool, now time.Time) *consolidation.Kept {
	failed, isFailed := v.memory.failed[m.uid()]
	mv := v.open.byUID[m.uid()]
	k := &consolidation.Kept{Kind: consolidation.Disrupting}
	switch {
	case m.claim.DeletionTimestamp != nil || v.terminations.deleted[m.uid()]:
		k.Message = "its NodeClaim is being deleted"
	case mv != nil && mv.draining():
		k.Message = "it is being drained"
	case mv != nil:
		k.Message = "capacity for its pods is reserved elsewhere, and it is drained as soon as that is usable"
	case v.replacements.begun[m.uid()] != nil:
		k.Message = "it is being replaced"
	case isFailed && now.Before(failed.until) && (failed.forced || !forced):
		k.Kind, k.Until = consolidation.OtherReason, failed.until
		k.Message = fmt.Sprintf("emptying it was given up, and is not tried again before %s: %v", failed.until.UTC().Format(time.RFC3339), failed.err)
	case disrupted(m.node):
		k.Message = "it has the taint " + karpv1.DisruptedTaintKey
	default:
		return nil
	}
	return k
}

// takeEnded reports whether a move has ended since the last call.
func (v *moves) takeEnded() bool {
	ended := v.memory.ended
	v.memory.ended = false
	return ended
}

// receivedUntil returns until when a node that took pods of a move is no candidate.
func (v *moves) receivedUntil(node string) time.Time { return v.memory.received[node] }

// prune points each move's sources at the candidates of a new pass of the controller, and forgets what is over.
func (v *moves) prune(s *cluster, now time.Time) {
	for _, mv := range v.open.list {
		for _, src := range mv.sources {
			if m := s.byUID[src.uid()]; m != nil {
				src.candidate = m
			} else {
				src.gone = true
			}
		}
	}
	maps.DeleteFunc(v.memory.failed, func(_ string, f failure) bool { return !now.Before(f.until.Add(moveBackOffMost)) })
	maps.DeleteFunc(v.memory.received, func(_ string, until time.Time) bool { return !now.Before(until) })
}

// reserve takes over a move for which the planner has reserved capacity. If that move can't be made any more, it is given up at once.
func (v *moves) reserve(ctx context.Context, s *cluster, due *consolidation.Due, templates map[string]string, now time.Time) error {
	mv := &move{Due: *due, since: now, templates: templates}
	var unknown error
	for _, node := range due.Nodes {
		m := s.byNode[node]
		switch {
		case m == nil || m.pool == nil:
			unknown = fmt.Errorf("node %s is gone", node)
			continue
		case v.has(m.uid()):
			unknown = fmt.Errorf("node %s is in another move", node)
		}
		mv.sources = append(mv.sources, &source{candidate: m})
	}
	v.count(mv, "reserved")
	if unknown == nil {
		unknown = v.impossible(mv)
	}
	if unknown != nil {
		return v.giveUp(ctx, mv, unknown)
	}
	v.open.add(mv)
	mv.pays = now.Add(due.PaysBack())
	var failed error
	if mv.forced() { // it needn't save anything
		mv.pays = now.Add(min(due.PaysBack(), consolidation.DefaultFirstHour))
		failed = v.rollOuts.reserved(ctx, s, due, now)
	}
	for _, node := range due.Receivers() {
		if mv.pays.After(v.memory.received[node]) {
			v.memory.received[node] = mv.pays
		}
	}
	reason := reasonMove
	if mv.forced() {
		reason = reasonReplace
	}
	for _, src := range mv.sources {
		v.recorder.Eventf(src.claim, nil, corev1.EventTypeNormal, reason, "Disrupt", "The node is going to be drained because %s: capacity for its pods is reserved on other nodes", dueText(v.budgets.reasons.of(due.Reason), due, src.candidate))
	}
	klog.FromContext(ctx).V(2).Info("Reserved capacity for the pods of used nodes", "move", due.Key, "nodes", due.Nodes, "newNodes", len(due.New), "saves", due.Saves)
	return failed
}

// pass takes each move a step further, and returns when to do so again (0: there are none).
func (v *moves) pass(ctx context.Context, s *cluster, now time.Time) (soon time.Duration, errs []error) {
	for _, mv := range slices.Clone(v.open.list) {
		wait, err := v.advance(ctx, s, mv, now)
		soon = nearer(soon, wait)
		errs = append(errs, err)
	}
	return soon, errs
}

func (v *moves) advance(ctx context.Context, s *cluster, mv *move, now time.Time) (time.Duration, error) {
	if mv.draining() {
		if v.refused(ctx, mv, now) {
			return 0, v.giveUp(ctx, mv, errors.New("the API server doesn't let its NodeClaims be deleted"))
		}
		return v.drain(ctx, s, mv, now)
	}
	if err := v.impossible(mv); err != nil {
		return 0, v.giveUp(ctx, mv, err)
	}
	missing, err := v.begin(ctx, s, mv, now)
	switch {
	case err != nil:
		return 0, v.giveUp(ctx, mv, err)
	case missing == nil:
		v.count(mv, "begun")
		for _, src := range mv.sources {
			disruptionmetrics.MovedPods.WithLabelValues(src.pool.Name).Add(float64(src.pods))
		}
		return v.drain(ctx, s, mv, now)
	case mv.late(missing, now):
		return 0, v.giveUp(ctx, mv, fmt.Errorf("it could not begin within %s: %w", now.Sub(mv.since).Round(time.Second), missing))
	}
	return nearer(replaceEvery, v.terminations.brake.Wait(now)), nil
}

// errLaunching is why a move doesn't begin whose new nodes are not there yet.
var errLaunching = errors.New("the nodes for its pods are not initialized yet")

// drain deletes the claims of a move as the brake allows, and keeps the reservations until all of them are gone. A deletion that fails is
// tried again. After a pause, or the loss of a node that takes its pods, no further deletion is tried, and the nodes that are left are kept.
func (v *moves) drain(ctx context.Context, s *cluster, mv *move, now time.Time) (time.Duration, error) {
	v.planner.Keep(mv.Key)
	lost := v.lost(s, mv)
	soon, gone := time.Duration(0), 0
	var errs []error
	for _, src := range mv.sources {
		switch {
		case src.gone || src.kept:
			gone++
		case src.claim.DeletionTimestamp != nil || v.terminations.deleted[src.uid()]:
		case paused(src.candidate) && src.tried: // its deletion may have worked: wait for the cache
		case paused(src.candidate):
			gone++
			errs = append(errs, v.keep(ctx, mv, src, fmt.Errorf("disruption of NodePool %s is paused", src.pool.Name), now))
		case lost != nil && !src.tried:
			gone++
			errs = append(errs, v.keep(ctx, mv, src, lost, now))
		case v.terminations.braked(src.candidate) || !v.terminations.brake.Take(now):
			soon = nearer(soon, v.terminations.brake.Wait(now))
		default:
			src.tried = true
			if err := v.terminations.end(ctx, decisionOf(v.budgets.reasons.of(mv.Reason), src.candidate, &mv.Due)); err != nil {
				errs = append(errs, err)
				soon = nearer(soon, replaceEvery)
				continue
			}
			v.kept.remove(ctx, src.claim)
		}
	}
	if gone == len(mv.sources) {
		v.count(mv, "done")
		v.planner.Forget(mv.Key)
		for _, src := range mv.sources {
			if src.kept && src.node != nil && v.needed(src, mv) {
				v.cordons.again(src.node.Name)
			}
		}
		v.drop(mv)
		klog.FromContext(ctx).V(2).Info("Used nodes were emptied", "move", mv.Key, "nodes", mv.Nodes)
	}
	return soon, utilerrors.NewAggregate(errs)
}

// lost returns why the nodes of a move whose deletion has not been tried can't be emptied any more although others are; nil: they can.
func (v *moves) lost(s *cluster, mv *move) error {
	if !slices.ContainsFunc(mv.sources, func(src *source) bool { return !src.gone && !src.kept && !src.tried }) {
		return nil
	}
	missing, err := v.receiving(s, mv)
	return cmp.Or(err, missing)
}

// keep takes a node out of a move that has begun to empty others. Its cordon and the reservations for its pods last until the others are gone.
func (v *moves) keep(ctx context.Context, mv *move, src *source, why error, now time.Time) error {
	src.kept = true
	v.memory.fail(src.candidate, why, mv.forced(), false, now)
	v.tellKept(mv, src, why)
	if v.replacements.begun[src.uid()] != nil || src.node == nil {
		return nil
	}
	if err := v.cordons.nodes.Undisrupt(ctx, src.node); err != nil {
		src.kept = false // the next pass tries again
		return fmt.Errorf("uncordoning Node %s: %w", src.node.Name, err)
	}
	return nil
}

// tellKept records an event on the claim of a node that isn't emptied after all.
func (v *moves) tellKept(mv *move, src *source, why error) {
	reason, note := reasonMoveGivenUp, "The node is not drained to save money: %v"
	if r := v.budgets.reasons.of(mv.Reason); r != nil {
		reason, note = reasonNoRoom, "The node, "+r.clause()+", is not replaced now: %v"
	}
	v.recorder.Eventf(src.claim, nil, corev1.EventTypeNormal, reason, "Disrupt", note, why)
}

// refused reports whether none of a move's claims could be deleted for a long time.
func (v *moves) refused(ctx context.Context, mv *move, now time.Time) bool {
	if now.Sub(mv.since) <= 2*moveTimeout {
		return false
	}
	for _, src := range mv.sources {
		if src.gone || src.claim.DeletionTimestamp != nil || v.terminations.deleted[src.uid()] {
			return false
		}
		live := &karpv1.NodeClaim{} // an answer may have been lost, and the cache may be behind
		if err := v.cordons.live.Get(ctx, client.ObjectKeyFromObject(src.claim), live); err != nil || live.DeletionTimestamp != nil {
			return false
		}
	}
	return true
}

// overtake gives up the move of a node that has to end. It returns true if the node is being drained for the move already.
func (v *moves) overtake(ctx context.Context, d *decision) (draining bool, err error) {
	mv := v.open.byUID[d.uid()]
	if mv == nil {
		return false, nil
	}
	if slices.ContainsFunc(mv.sources, func(src *source) bool { return src.kept && src.uid() == d.uid() }) {
		return false, nil
	}
	if mv.draining() {
		return true, nil
	}
	return false, v.giveUp(ctx, mv, fmt.Errorf("node %s has to end: %s", d.claim.Status.NodeName, d.message))
}

// leave gives up the moves that have reserved capacity on a node that has to end: with reservations it can't be cordoned.
func (v *moves) leave(node string) {
	if v.planner != nil {
		v.planner.Leave(node)
	}
}

// giveUp undoes what was done for a move that hasn't deleted anything. Its nodes are no candidates for a while.
func (v *moves) giveUp(ctx context.Context, mv *move, why error) error {
	var errs []error
	for _, src := range mv.sources {
		if src.tainted && !src.gone && src.node != nil && !v.needed(src, mv) {
			if err := v.cordons.nodes.Undisrupt(ctx, src.node); err != nil { // the next pass removes the taint (clearStale)
				errs = append(errs, fmt.Errorf("uncordoning Node %s: %w", src.node.Name, err))
			}
		}
	}
	v.planner.Forget(mv.Key)
	v.failSurge(mv, why)
	for _, src := range mv.sources {
		if src.gone {
			continue
		}
		if src.node != nil && v.needed(src, mv) {
			v.cordons.again(src.node.Name)
		}
		v.memory.fail(src.candidate, why, mv.forced(), len(mv.Claims) > 0 || mv.surging.begun(), v.terminations.clock.Now())
		v.tellKept(mv, src, why)
	}
	for _, node := range mv.Receivers() {
		if v.memory.received[node].Equal(mv.pays) {
			delete(v.memory.received, node)
		}
	}
	v.count(mv, "given_up")
	karpentermetrics.GivenUp(string(mv.Reason), len(mv.Claims) > 0)
	v.drop(mv)
	klog.FromContext(ctx).V(2).Info("Gave up emptying used nodes", "move", mv.Key, "nodes", mv.Nodes, "reason", why.Error())
	return utilerrors.NewAggregate(errs)
}

// needed reports whether a node's cordon is needed for another reason than its move.
func (v *moves) needed(src *source, mv *move) bool {
	other := v.open.byUID[src.uid()]
	return other != nil && other != mv || v.replacements.begun[src.uid()] != nil || v.terminations.deleted[src.uid()] || src.claim.DeletionTimestamp != nil
}

func (v *moves) drop(mv *move) {
	v.open.remove(mv)
	v.memory.ended = true
}

func (v *moves) count(mv *move, result string) {
	if len(mv.sources) > 0 && mv.sources[0].pool != nil {
		disruptionmetrics.Moves.WithLabelValues(mv.sources[0].pool.Name, result).Inc()
	}
}
