package disruption

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
)

// spares replaces the drifted nodes of static pools, one after the other. Nothing is planned: pkg/staticpool launches one node more than the pool
// has replicas as long as the pool wants a spare, and when that node has been initialized for a while the node that has drifted for the longest
// ends. Only the goroutine that makes the passes uses it, except for wanted.
//
//	replicas nodes, one drifted -> a spare is wanted: the budgets allow it, and nothing forbids the end of the drifted node
//	replicas + 1 nodes, one new -> the drifted node ends: all nodes are initialized. No spare is wanted until it is gone. As long as something
//	                               forbids its end, the spare stays: it would have to be launched again
//	anything else               -> no spare is wanted: pkg/staticpool removes one that is too many
type spares struct {
	rollOuts     *rollOuts
	terminations *terminations
	bound        nodepods.Reader
	rules        *podrules.Rules // nil: PodDisruptionBudgets are left to the drain
	recorder     events.EventRecorder
	clock        clock.Clock
	changed      func() // called when Spare has another answer for a pool (Config.Recount)
	// wanted says of static pools whether they want a spare until the next pass. For a pool that isn't in it, that isn't known.
	wanted atomic.Pointer[map[string]bool]
}

// Spare reports whether a static pool is to have one node more than its replicas, which takes the place of a drifted one, and whether that is
// known: it isn't before the first pass has seen the pool, or if it isn't clear whether a drifted node was ended. Safe for concurrent use.
func (c *Controller) Spare(pool string) (wanted, known bool) {
	if all := c.passes.spares.wanted.Load(); all != nil {
		wanted, known = (*all)[pool]
	}
	return wanted, known
}

func (p *spares) pass(ctx context.Context, s *cluster, now time.Time) (errs []error) {
	if p.rules != nil {
		if err := p.rules.Budgets.Read(); err != nil {
			return []error{err} // what is wanted stays as it was
		}
	}
	wanted := map[string]bool{}
	var due []*decision
	for _, np := range s.pools {
		if np.Spec.Replicas == nil || np.DeletionTimestamp != nil {
			continue
		}
		d, spare, err := p.decide(ctx, s, np, now)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if d != nil && (p.terminations.braked(d.candidate) || !p.terminations.brake.Take(now)) {
			d, spare = nil, true
		}
		if d != nil {
			due = append(due, d)
		} else {
			wanted[np.Name] = spare
		}
	}
	p.publish(wanted) // a pool is unknown while its node ends, so that pkg/staticpool neither launches a node in its place nor ends the spare
	for _, d := range due {
		if err := p.terminations.end(ctx, d); err != nil {
			errs = append(errs, err) // it may have ended or not: that isn't known until the next pass
			continue
		}
		wanted = maps.Clone(wanted)
		wanted[d.pool.Name] = false // the pool has enough nodes
		p.publish(wanted)
	}
	return errs
}

// publish has Spare answer from wanted, which must not be changed any more.
func (p *spares) publish(wanted map[string]bool) {
	if before := p.wanted.Swap(&wanted); before == nil || !maps.Equal(*before, wanted) {
		p.changed()
	}
}

// staticNodes are the nodes of a static pool in a pass.
type staticNodes struct {
	live    int64       // claims that aren't ending
	drifted []*decision // those that are to be replaced, the one that drifted first comes first
	settled bool        // all nodes are initialized, those of the present template for long enough
	spare   bool        // one may be a spare: it isn't initialized, or it has the present template and hasn't drifted
	fresh   *candidate  // one that may take the place of a drifted node, since it has proved to work; nil: there is none
}

// look returns the nodes of a static pool.
func (p *spares) look(s *cluster, np *karpv1.NodePool, now time.Time) staticNodes {
	r := p.rollOuts.of(np.Name)
	out := staticNodes{settled: true}
	for _, m := range s.candidates {
		if m.pool != np || m.claim.DeletionTimestamp != nil || p.terminations.deleted[m.uid()] {
			continue
		}
		out.live++
		since, reason := driftOf(m.claim)
		up := condition(m.claim, karpv1.ConditionTypeInitialized)
		switch {
		case up == nil:
			out.settled, out.spare = false, true
		case reason != "" && !r.again[m.claim.UID]:
			out.drifted = append(out.drifted, &decision{candidate: m, reason: string(karpv1.DisruptionReasonDrifted), since: since, message: "it has drifted (" + string(reason) + ")", drift: true})
		case r.launched(m):
			out.spare = true
			if now.Sub(up.LastTransitionTime.Time) >= provedAfter {
				out.fresh = m
			} else {
				out.settled = false
			}
		}
	}
	slices.SortFunc(out.drifted, func(a, b *decision) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.claim.Name, b.claim.Name))
	})
	return out
}

// decide returns which node of a static pool ends now, and whether a spare is wanted.
func (p *spares) decide(ctx context.Context, s *cluster, np *karpv1.NodePool, now time.Time) (end *decision, spare bool, err error) {
	pool := p.look(s, np, now)
	missing := *np.Spec.Replicas + 1 - pool.live
	if len(pool.drifted) == 0 || missing > 1 {
		return nil, false, nil
	}
	before, known := false, false
	if all := p.wanted.Load(); all != nil {
		before, known = (*all)[np.Name]
	}
	// A spare that is there stays until it has taken the place of a drifted node. Otherwise pkg/staticpool ends a node too many: the pool is scaled in.
	there := missing <= 0 && pool.spare && (before || !known)
	total, disrupting := p.terminations.count(s, np, p.terminations.unavailable)
	if paused(pool.drifted[0].candidate) || budgets.Allowed(np.Spec.Disruption.Budgets, p.clock, total, karpv1.DisruptionReasonDrifted) <= disrupting {
		return nil, there, nil
	}
	target, err := p.first(pool.drifted, now)
	switch {
	case err != nil:
		return nil, false, err
	case target == nil && missing == 1 && before: // the node that was launched may not be seen yet
		return nil, !p.held(np.Name, now), nil
	case target == nil || missing < 0 || p.terminations.dry(ctx, target):
		return nil, there, nil
	case missing == 1:
		return nil, !p.held(np.Name, now), nil
	case !pool.settled:
		return nil, true, nil
	case pool.fresh == nil:
		return nil, false, nil // the pool was scaled in: package staticpool ends the node that is too many
	}
	target.message += fmt.Sprintf(", and NodeClaim %s takes its place", pool.fresh.claim.Name)
	return target, false, nil
}

// held reports whether no node of the pool may be launched for a drifted one now.
func (p *spares) held(pool string, now time.Time) bool {
	var policy consolidation.Policy
	p.rollOuts.policy(pool, &policy, now)
	return policy.Held != ""
}

// first returns the first node that nothing keeps from being ended; nil: there is none.
func (p *spares) first(drifted []*decision, now time.Time) (*decision, error) {
	for _, d := range drifted {
		if d.node == nil || d.node.DeletionTimestamp != nil {
			continue
		}
		bound, err := p.bound.Cached(d.node.Name)
		if err != nil {
			return nil, err
		}
		if err := protected(d.candidate, bound, now, true); err != nil {
			p.recorder.Eventf(d.node, d.claim, corev1.EventTypeNormal, reasonBlocked, "Disrupt", "%v", err)
			continue
		}
		if draining(p.rules, d.candidate, bound, true, now) != nil {
			continue
		}
		return d, nil
	}
	return nil, nil
}
