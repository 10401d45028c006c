package disruption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// removals terminates nodes that may be terminated, none of which has pods of its own. Only the goroutine that makes the passes uses it.
type removals struct {
	reasons      []reason
	bound        nodepods.Reader
	rules        *podrules.Rules // nil: PodDisruptionBudgets are left to the drain
	cordons      *cordons
	terminations *terminations
	moves        *moves
	recorder     events.EventRecorder
	clock        clock.Clock
}

// pass terminates nodes for one reason after another, as far as budgets and brake allow, and returns how soon the next one may be (0: none
// is waiting). If one fails, the others go on; the failed one still counts against the budget, since its deletion may have worked.
func (r *removals) pass(ctx context.Context, s *cluster) (soon time.Duration, errs []error) {
	if r.rules != nil {
		if err := r.rules.Budgets.Read(); err != nil {
			return 0, []error{err}
		}
	}
	for _, reason := range r.reasons {
		start := r.clock.Now()
		due, wait, err := r.due(s, reason)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		karpentermetrics.Evaluated(string(reason.budget()), r.clock.Since(start))
		karpentermetrics.Eligible(string(reason.budget()), len(due))
		soon = nearer(soon, wait)
		budgets := r.budgets(s, reason.budget(), due)
		for _, d := range due {
			if budgets[d.pool.Name] <= 0 {
				continue
			}
			if r.terminations.dry(ctx, d) {
				budgets[d.pool.Name]--
				continue
			}
			if r.terminations.braked(d.candidate) {
				break
			}
			ended, err := r.remove(ctx, d)
			if ended || err != nil {
				budgets[d.pool.Name]--
			}
			errs = append(errs, err)
		}
	}
	return soon, errs
}

// due finds the nodes that may be terminated now, the longest due first, and how soon the next one may be (0: none is waiting).
func (r *removals) due(s *cluster, reason reason) (due []*decision, soon time.Duration, err error) {
	now := r.clock.Now()
	for _, m := range s.candidates {
		if r.terminations.deleted[m.uid()] || r.moves.has(m.uid()) {
			continue
		}
		d, err := reason.decide(m, now)
		if err != nil {
			return nil, 0, err
		} else if d == nil {
			continue
		}
		if wait := d.at.Sub(now); wait > 0 {
			soon = nearer(soon, wait)
			continue
		}
		bound, err := r.bound.Cached(m.node.Name)
		if err != nil {
			return nil, 0, err
		}
		if err := r.blocked(d, bound, now); err != nil {
			r.recorder.Eventf(m.node, m.claim, corev1.EventTypeNormal, reasonBlocked, "Disrupt", "%v", err)
			continue
		}
		due = append(due, d)
	}
	slices.SortFunc(due, func(a, b *decision) int {
		if d := a.since.Compare(b.since); d != 0 {
			return d
		}
		return strings.Compare(a.claim.Name, b.claim.Name)
	})
	return due, soon, nil
}

// blocked returns why a node stays although it has no pods of its own: it, or a pod, asks not to be disrupted, or its drain would have to wait
// for a pod that a PodDisruptionBudget doesn't let go. Such a drain might never end, while the node is cordoned and paid for.
func (r *removals) blocked(d *decision, bound []*corev1.Pod, now time.Time) error {
	if err := protected(d.candidate, bound, now, d.drift); err != nil {
		return err
	}
	if by := draining(r.rules, d.candidate, bound, d.drift, now); by != nil {
		return errors.New("disruption is blocked: " + by.Text())
	}
	return nil
}

// remove terminates a node that looks empty:
//
//  1. Fence: our own scheduler binds nothing there from now on; Fence refuses when a pod is on its way.
//  2. Taint: neither does any other scheduler, once it has seen the taint.
//  3. Read the node's pods from the API: everything that was bound before 1 and 2 is there.
//  4. Delete the claim.
//
// Any failure removes cordon and taint, except a failed deletion: it may have worked. Then they stay until the next pass knows
// (clearStale). A pod that another scheduler binds after 3, before it sees the taint, is evicted as in any drain.
func (r *removals) remove(ctx context.Context, d *decision) (ended bool, err error) {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "node", klog.KObj(d.node), "nodeClaim", d.claim.Name)
	if d.drift {
		r.cordons.fence.GiveUpChunks(d.node.Name)
	}
	if !r.cordons.fence.Fence(d.node.Name) {
		logger.V(4).Info("An empty node is about to get pods and stays")
		return false, nil
	}
	back := true
	defer func() {
		if back {
			if e := r.cordons.nodes.Undisrupt(ctx, d.node); e != nil && err == nil {
				err = e // the next pass removes the taint (clearStale)
			}
			r.cordons.fence.Unfence(d.node.Name)
		}
	}()
	if err := r.cordons.nodes.Disrupt(ctx, d.node); err != nil {
		return false, fmt.Errorf("tainting an empty node: %w", err)
	}
	now := r.clock.Now()
	bound, err := r.bound.Live(ctx, d.node.Name)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, now) }) || r.blocked(d, bound, now) != nil {
		logger.V(3).Info("A pod was bound to an empty node at the last moment; the node stays")
		return false, nil
	}
	if !r.terminations.brake.Take(now) {
		return false, nil
	}
	back = false
	return true, r.terminations.end(ctx, d)
}
