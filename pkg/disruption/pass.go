package disruption

import (
	"context"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/surge"
)

// pollEvery is how often a pass is made if nothing triggers one.
const pollEvery = 10 * time.Second

// passes is what one goroutine needs to make passes. It isn't safe for concurrent use.
type passes struct {
	claims         client.Reader
	nodes          corelisters.NodeLister
	hold           func() error
	clock          clock.Clock
	cordons        *cordons
	terminations   *terminations
	unhealthy      *unhealthy
	replacements   *replacements
	removals       *removals
	consolidations *consolidations
	rollOuts       *rollOuts
	spares         *spares
}

func newPasses(cfg *Config, pods cache.Indexer, surges *surge.Requests) passes {
	p := passes{
		claims: cfg.Claims, nodes: cfg.Informers.Core().V1().Nodes().Lister(), hold: cfg.Hold, clock: cfg.Clock,
		cordons: &cordons{fence: cfg.Fence, nodes: cfg.Nodes, live: cfg.Live},
		terminations: &terminations{claims: cfg.Claims, recorder: cfg.Recorder, clock: cfg.Clock, brake: cfg.Brake, dryRun: cfg.DryRun, ending: cfg.Ending, causeKnown: cfg.CauseKnown,
			deleted: map[string]bool{}, reported: map[string]time.Time{}},
	}
	bound := nodepods.Reader{Kube: cfg.Kube, Pods: pods}
	p.replacements = &replacements{capacity: cfg.Replacements, cordons: p.cordons, terminations: p.terminations, pods: pods, recorder: cfg.Recorder,
		begun: map[string]*replacedNode{}}
	p.rollOuts = &rollOuts{objects: cfg.Claims, kind: cfg.NodeClass, bound: bound, recorder: cfg.Recorder, clock: cfg.Clock, dryRun: cfg.DryRun, pools: map[string]*rollOut{}}
	p.terminations.rollOuts = p.rollOuts
	p.unhealthy = newUnhealthy(cfg)
	p.consolidations = newConsolidations(cfg, bound, p.cordons, p.terminations, p.replacements, p.unhealthy, p.rollOuts, surges)
	p.replacements.moves = p.consolidations.moves
	p.removals = &removals{bound: bound, rules: p.consolidations.moves.rules, cordons: p.cordons, terminations: p.terminations, moves: p.consolidations.moves, recorder: cfg.Recorder, clock: cfg.Clock}
	p.spares = &spares{rollOuts: p.rollOuts, terminations: p.terminations, bound: bound, rules: p.consolidations.moves.rules, recorder: cfg.Recorder, clock: cfg.Clock, changed: cfg.Recount}
	if p.spares.changed == nil {
		p.spares.changed = func() {}
	}
	for _, r := range reasons(cfg, pods, p.unhealthy, p.rollOuts) {
		if r.budget() == "" {
			p.replacements.reasons = append(p.replacements.reasons, r)
		} else {
			p.removals.reasons = append(p.removals.reasons, r)
		}
	}
	return p
}

// run makes one pass over the whole cluster:
//
//  1. Read pools, claims and nodes.
//  2. Remove taints left over from interrupted passes.
//  3. Find the unhealthy nodes, and what keeps them from being repaired.
//  4. Find out what new nodes are launched from, and whether such nodes work where drifted ones are replaced.
//  5. Take over which used nodes can be emptied, and why the others are kept.
//  6. Find the nodes that have to end, and whether there is capacity for their pods.
//  7. Find the nodes that may be terminated because they are empty, or drifted and empty, and how many of them each pool allows.
//  8. Starting with the longest empty one, cordon each, taint it and check it again, until the budget is used up.
//  9. Find the drifted nodes of static pools whose place a spare node takes.
//  10. Empty used nodes for whose pods capacity is reserved elsewhere, and ask which ones to empty next.
//
// It returns when to make the next pass, and for how long none may be made. watched is when this process began to end nodes.
func (p *passes) run(ctx context.Context, watched time.Time) (next, rest time.Duration, err error) {
	if err := p.hold(); err != nil {
		klog.FromContext(ctx).V(4).Info("Paused", "reason", err.Error())
		return pollEvery, 0, nil
	}
	s, err := p.read(ctx, watched)
	if err != nil {
		return 0, 0, err
	}
	rest = min(time.Duration(len(s.candidates))*restPerNode, pollEvery)
	p.terminations.prune(s)
	errs := p.cordons.clearStale(ctx, s, func(m *candidate) bool {
		return p.terminations.deleted[m.uid()] || p.replacements.begun[m.uid()] != nil || p.consolidations.moves.has(m.uid())
	})
	p.unhealthy.observe(s, p.clock.Now())
	errs = append(errs, p.rollOuts.observe(ctx, s, p.clock.Now())...)
	errs = append(errs, p.consolidations.collect(ctx, s)...)
	due, failed := p.replacements.pass(ctx, s)
	errs = append(errs, failed...)
	soon, failed := p.removals.pass(ctx, s)
	errs = append(errs, failed...)
	errs = append(errs, p.spares.pass(ctx, s, p.clock.Now())...)
	moves, failed := p.consolidations.pass(ctx, s)
	errs = append(errs, failed...)
	if err := utilerrors.NewAggregate(errs); err != nil {
		return 0, rest, err
	}
	return earliest(due, soon, moves, p.terminations.brake.Wait(p.clock.Now())), rest, nil
}

// read reads pools and claims and finds each claim's Node.
func (p *passes) read(ctx context.Context, watched time.Time) (*cluster, error) {
	var claims karpv1.NodeClaimList
	if err := p.claims.List(ctx, &claims); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	var pools karpv1.NodePoolList
	if err := p.claims.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	s := &cluster{nodes: p.nodes}
	byName := map[string]*karpv1.NodePool{}
	for i := range pools.Items {
		pool := &pools.Items[i]
		s.pools, byName[pool.Name] = append(s.pools, pool), pool
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		m := &candidate{claim: claim, pool: byName[claim.Labels[karpv1.NodePoolLabelKey]], watched: watched}
		if n, err := p.nodes.Get(claim.Status.NodeName); err == nil && n.Spec.ProviderID == claim.Status.ProviderID {
			m.node = n
		}
		s.candidates = append(s.candidates, m)
	}
	s.index()
	return s, nil
}

// earliest returns the shortest of some waits, at most pollEvery; 0 is no wait.
func earliest(waits ...time.Duration) time.Duration {
	out := pollEvery
	for _, w := range waits {
		if w > 0 {
			out = min(out, w)
		}
	}
	return out
}
