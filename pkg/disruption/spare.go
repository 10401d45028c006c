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
)

// spares replaces the drifted nodes of static pools, one after the other. Nothing is planned: pkg/staticpool launches one node more than the pool
// has replicas as long as the pool is in wanted, and when that node has been initialized for a while the node that has drifted for the longest
// ends. Only the goroutine that makes the passes uses it, except for wanted.
//
//	replicas nodes, one drifted -> a spare is wanted: the budgets allow it, and nothing forbids the end of the drifted node
//	replicas + 1 nodes          -> the drifted node ends: all nodes are initialized. No spare is wanted until it is gone
//	anything else               -> no spare is wanted: pkg/staticpool removes one that is too many
type spares struct {
	rollOuts     *rollOuts
	terminations *terminations
	bound        nodePods
	rules        *podRules // nil: PodDisruptionBudgets are left to the drain
	recorder     events.EventRecorder
	clock        clock.Clock
	changed      func() // as in Config
	// wanted are the static pools that want a node more, until the next pass.
	wanted atomic.Pointer[map[string]bool]
}

// Spare reports whether a static pool is to have one node more than its replicas, which takes the place of a drifted one. Safe for concurrent
// use.
func (c *Controller) Spare(pool string) bool {
	wanted := c.passes.spares.wanted.Load()
	return wanted != nil && (*wanted)[pool]
}

func (p *spares) pass(ctx context.Context, s *cluster, now time.Time) (errs []error) {
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
		wanted[np.Name] = spare
		if d != nil {
			due = append(due, d)
		}
	}
	maps.DeleteFunc(wanted, func(_ string, yes bool) bool { return !yes })
	before := p.wanted.Swap(&wanted) // before anything ends: the pool has enough nodes then
	if before == nil || !maps.Equal(*before, wanted) {
		p.changed()
	}
	for _, d := range due {
		if p.terminations.braked(d.candidate) || !p.terminations.brake.Take(now) {
			continue // the spare is too many until then, but pkg/staticpool counts once a minute or when told
		}
		errs = append(errs, p.terminations.end(ctx, d))
	}
	return errs
}

// decide returns which node of a static pool ends now, and whether a spare is wanted.
func (p *spares) decide(ctx context.Context, s *cluster, np *karpv1.NodePool, now time.Time) (end *decision, spare bool, err error) {
	r := p.rollOuts.of(np.Name)
	var drifted []*decision
	live, booting, fresh := int64(0), false, (*candidate)(nil)
	for _, m := range s.candidates {
		if m.pool != np || m.claim.DeletionTimestamp != nil || p.terminations.deleted[m.uid()] {
			continue
		}
		live++
		since, reason := driftOf(m.claim)
		up := condition(m.claim, karpv1.ConditionTypeInitialized)
		switch {
		case up == nil:
			booting = true
		case reason != "" && !r.again[m.claim.UID]:
			drifted = append(drifted, &decision{candidate: m, reason: string(karpv1.DisruptionReasonDrifted), since: since, message: "it has drifted (" + string(reason) + ")", drift: true})
		case r.launched(m) && now.Sub(up.LastTransitionTime.Time) >= provedAfter:
			fresh = m
		}
	}
	slices.SortFunc(drifted, func(a, b *decision) int {
		return cmp.Or(a.since.Compare(b.since), strings.Compare(a.claim.Name, b.claim.Name))
	})
	total, disrupting := p.terminations.count(s, np, p.terminations.unavailable)
	if len(drifted) == 0 || paused(drifted[0].candidate) || budgets.Allowed(np.Spec.Disruption.Budgets, p.clock, total, karpv1.DisruptionReasonDrifted) <= disrupting {
		return nil, false, nil
	}
	target, err := p.first(drifted, now)
	if target == nil || err != nil || p.terminations.dry(ctx, target) {
		return nil, false, err
	}
	switch missing := *np.Spec.Replicas + 1 - live; {
	case missing > 1 || missing < 0:
		return nil, false, nil // the pool is being scaled
	case missing == 1:
		var policy consolidation.Policy
		p.rollOuts.policy(np.Name, &policy, now)
		return nil, policy.Held == "", nil
	case booting || fresh == nil:
		return nil, true, nil
	}
	target.message += fmt.Sprintf(", and NodeClaim %s takes its place", fresh.claim.Name)
	return target, false, nil
}

// first returns the first node that nothing keeps from being ended; nil: there is none.
func (p *spares) first(drifted []*decision, now time.Time) (*decision, error) {
	for _, d := range drifted {
		if d.node == nil || d.node.DeletionTimestamp != nil {
			continue
		}
		bound, err := p.bound.cached(d.node.Name)
		if err != nil {
			return nil, err
		}
		if err := protected(d.candidate, bound, now, true); err != nil {
			p.recorder.Eventf(d.node, d.claim, corev1.EventTypeNormal, reasonBlocked, "Disrupt", "%v", err)
			continue
		}
		if p.rules != nil && !hasDeadline(d.candidate) {
			if err := p.rules.budgets.Read(); err != nil {
				return nil, err
			}
			if p.rules.unevictable(p.rules.look(bound), now) != nil {
				continue
			}
		}
		return d, nil
	}
	return nil, nil
}
