package launch

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// staticState is what is remembered of static pools and of the claims that end because their pool has too many. Safe for concurrent use.
type staticState struct {
	claims *claimCache
	clock  clock.PassiveClock

	mu     sync.Mutex
	pools  map[string]*static
	ending map[string]bool // claims by which static pools exceed their replicas
}

// staticPools keeps static pools at their replicas. It has a goroutine of its own.
type staticPools struct {
	state     *staticState
	claims    *claimCache
	cloud     Cloud
	daemons   func() []*capacity.DaemonSet
	snapshot  *snapshot
	judge     Judge
	purchases *purchases
	committer *committer
	ownership *Ownership
	triggers  *provisioning.Triggers
	calls     *calls
	options   capacity.Options
}

const (
	// Static pools are counted at most every staticPoll and at least every staticResync.
	staticPoll   = time.Second
	staticResync = time.Minute
	// limitPause is how long a pool that its limits keep from growing waits.
	limitPause = 10 * time.Second
	// A static pool whose nodes could not be launched, or never registered, gets no other before firstStaticRetry is over, and later each
	// time.
	firstStaticRetry = time.Second
	maxStaticRetry   = 5 * time.Minute
)

// Judge returns what it costs to end a pod early (zero or less: the pod doesn't keep a node from being removed), and whether the pod asks
// not to be disrupted.
type Judge func(pod *corev1.Pod, now time.Time) (cost float64, protected bool)

// static is what is remembered of a static pool.
type static struct {
	failed int       // rounds in a row without a node that registered
	next   time.Time // nothing is launched before
	said   string    // why it has fewer nodes than it wants, as last reported
}

// serveStatic keeps static pools at their replicas.
func (s *staticPools) serveStatic(ctx context.Context) {
	tick := s.calls.clock.NewTicker(staticPoll)
	defer tick.Stop()
	s.triggers.Recount()
	var looked time.Time
	for again := false; ; {
		select {
		case <-s.triggers.StaticPools():
			again = true
		default:
		}
		if now := s.calls.clock.Now(); again || now.Sub(looked) >= staticResync {
			again, looked = s.keepStatic(ctx), now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C(): // a burst of claims is counted once
		}
	}
}

// keepStatic checks every static pool, and reports whether one of them has too few nodes or too many.
func (s *staticPools) keepStatic(ctx context.Context) (again bool) {
	var pools []*capacity.Pool
	for _, p := range s.claims.Pools(s.cloud.InstanceTypes) {
		if p.Replicas != nil {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return false
	}
	if s.ownership.Hold() != nil || s.claims.Problem() != nil {
		return true
	}
	have := map[string]int64{}
	ending := s.state.allEnding()
	for name, c := range s.claims.allClaims() {
		if !c.Deleting && !ending[name] {
			have[c.Pool]++
		}
	}
	for _, p := range pools {
		if have[p.Name] == *p.Replicas {
			s.state.shortage(p.Name, "")
			continue
		}
		again = true
		if have[p.Name] > *p.Replicas || p.Unready == "" && s.state.mayGrow(p.Name) {
			s.keepPool(ctx, p)
		}
	}
	return again
}

// mayGrow reports whether the pool is not in back-off after a failure.
func (s *staticState) mayGrow(pool string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.poolLocked(pool).next.After(s.clock.Now())
}

// keepPool brings a static pool to its replicas, or closer to them.
//
//  1. Count what the API server has now, and what is about to be written: the caches of pools and claims may be behind.
//  2. Too many: choose which to end.
//  3. Too few: choose what to buy, within the limits, unless the pool is in back-off.
func (s *staticPools) keepPool(ctx context.Context, p *capacity.Pool) {
	ending := s.state.allEnding() // before the claims are read: cleanup.forget removes them in the other order
	replicas, there, written, err := s.claims.StaticClaims(ctx, p.Name)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not count the nodes of a static pool", "pool", p.Name, "err", err)
		}
		return
	}
	if !there {
		return // the deletion of the pool ends its nodes
	}
	liveClaims := s.liveClaims(p.Name, written, ending)
	switch n := int64(len(liveClaims)) - replicas; {
	case n > 0:
		s.shrink(ctx, p, liveClaims, int(n))
	case n < 0:
		s.grow(ctx, p, -n)
	}
}

// liveClaims returns the pool's claims that exist or are about to be written, and are not being ended. written holds those that the API
// server has; true: being deleted.
func (s *staticPools) liveClaims(pool string, written, ending map[string]bool) map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	all := s.claims.allClaims()
	for name, gone := range written {
		if gone || ending[name] {
			continue
		}
		out[name] = all[name]
		if out[name] == nil {
			out[name] = &capacity.Claim{Name: name, Pool: pool, Launched: true} // another process's, created a moment ago
		}
	}
	for name, c := range s.claims.known() {
		if _, there := written[name]; c.Pool == pool && !there && !c.Deleting && !ending[name] {
			out[name] = c
		}
	}
	return out
}

// grow launches up to n nodes for a static pool.
func (s *staticPools) grow(ctx context.Context, p *capacity.Pool, n int64) {
	if p.Unready != "" || !s.state.mayGrow(p.Name) {
		return // the pool's conditions or events say why
	}
	node, why, _ := planner.Resolve(p, nil, s.daemons(), s.options)
	if node == nil {
		s.state.recordFailure(p.Name)
		s.state.shortage(p.Name, why)
		return
	}
	room, over := s.purchases.headroom()
	if room == 0 {
		s.state.shortage(p.Name, over)
		return
	}
	plan := &capacity.Plan{}
	for i := range min(int(n), room) {
		own := *node
		own.ID = fmt.Sprint("new-", i)
		plan.Nodes = append(plan.Nodes, &own)
	}
	out := s.committer.Commit(ctx, &provisioning.Proposal{Plan: plan, For: capacity.ForPool, Requester: s.state,
		Workload: guard.Workload{Owner: "NodePool/" + p.Name}})
	if s.state.shortage(p.Name, out.Why); out.Why != "" && !out.Paused {
		s.state.waitFor(p.Name, limitPause)
	}
	if len(plan.Nodes) > 0 {
		klog.FromContext(ctx).V(2).Info("Launching nodes of a static pool", "pool", p.Name, "nodes", len(plan.Nodes), "instanceType", plan.Nodes[0].Offers[0].Type.Name)
	}
}

// shrink ends n nodes of a static pool. Disruption budgets don't apply; drains respect PodDisruptionBudgets.
func (s *staticPools) shrink(ctx context.Context, p *capacity.Pool, liveClaims map[string]*capacity.Claim, n int) {
	nodes, err := s.occupancy(ctx, liveClaims)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not read the nodes of a static pool; none is terminated", "pool", p.Name, "err", err)
		return
	}
	for _, name := range capacity.Surplus(nodes, n) {
		s.state.end(name)
		klog.FromContext(ctx).V(2).Info("Terminating a node of a static pool that has too many", "pool", p.Name, "nodeClaim", name)
		s.calls.background(ctx, func() {
			if err := s.claims.Delete(ctx, name); err != nil {
				klog.FromContext(ctx).V(2).Info("Could not terminate a node of a static pool; trying again", "nodeClaim", name, "err", err)
				s.state.forget(name)
				s.triggers.Recount()
			}
		})
	}
}

// occupancy returns what would be disrupted with each of the nodes.
func (s *staticPools) occupancy(ctx context.Context, liveClaims map[string]*capacity.Claim) ([]capacity.StaticNode, error) {
	now := s.calls.clock.Now()
	pods := map[string][]*corev1.Pod{}
	protected := map[string]bool{}
	s.snapshot.mu.Lock()
	err := s.snapshot.world.Refresh(ctx)
	if err == nil {
		s.snapshot.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
			pods[n.Name], protected[n.Name] = n.Pods, o.Annotations[doNotDisrupt] == "true"
			return n
		})
	}
	s.snapshot.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("taking a snapshot of the scheduler's cache: %w", err)
	}
	out := make([]capacity.StaticNode, 0, len(liveClaims))
	for name, c := range liveClaims {
		n := capacity.StaticNode{Claim: name, CreatedAt: c.CreatedAt, Launched: c.Launched, Protected: c.DoNotDisrupt || protected[c.NodeName]}
		for _, pod := range pods[c.NodeName] {
			cost, asks := s.judge(pod, now)
			n.Protected = n.Protected || asks
			if cost > 0 {
				n.Occupied = true
				n.Cost += cost
			}
		}
		n.Cost *= c.Remaining(now)
		out = append(out, n)
	}
	return out, nil
}

// shortage records, once, an event on a static pool about why it has fewer nodes than it wants; empty: it has them, or will.
func (s *staticState) shortage(pool, why string) {
	s.mu.Lock()
	p := s.poolLocked(pool)
	news := p.said != why
	p.said = why
	s.mu.Unlock()
	if news && why != "" {
		s.claims.TellPool(pool, corev1.EventTypeWarning, "TooFewNodes", objects.OneLine(why))
	}
}

func (s *staticState) poolLocked(pool string) *static {
	p := s.pools[pool]
	if p == nil {
		p = &static{}
		s.pools[pool] = p
	}
	return p
}

// waitFor launches nothing for a pool before d has passed.
func (s *staticState) waitFor(pool string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.poolLocked(pool).next = s.clock.Now().Add(d)
}

// recordFailure counts a failed launch for a static pool, once for all that fail together.
func (s *staticState) recordFailure(pool string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, now := s.poolLocked(pool), s.clock.Now()
	if now.Before(p.next) {
		return
	}
	p.failed++
	p.next = now.Add(min(firstStaticRetry<<min(p.failed-1, 20), maxStaticRetry))
}

// Needed reports whether the claim's static pool still needs it: the pool may have been scaled down before the claim was written.
func (s *staticState) Needed(claim string) (yes bool, why string) {
	return !s.isEnding(claim), "its NodePool has enough nodes without it"
}

// Failed counts the failure of a claim of a static pool, which is to end.
func (s *staticState) Failed(_ context.Context, c *capacity.Claim, _, why string) (stays bool) {
	s.recordFailure(c.Pool)
	s.shortage(c.Pool, why)
	s.end(c.Name)
	return false
}

// registered resets that count when a node of the pool has registered.
func (s *staticState) registered(c *capacity.Claim) {
	if c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || !c.Registered {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.poolLocked(c.Pool)
	p.failed, p.next = 0, time.Time{}
}

// lostStatic is called for a claim that ends. If it is a static pool's, never registered, and isn't ended by a scale-down, that counts as a
// failure.
func (s *staticState) lostStatic(name string) {
	c := s.claims.Current(name)
	if c == nil || c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || c.Registered {
		return
	}
	if !s.isEnding(name) {
		s.recordFailure(c.Pool)
	}
}

// isEnding reports whether the claim is being ended because its static pool has too many.
func (s *staticState) isEnding(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending[name]
}

// allEnding returns the claims that are being ended because their static pool has too many.
func (s *staticState) allEnding() map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ending)
}

// end records that the claim is being ended because its static pool doesn't need it.
func (s *staticState) end(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending[name] = true
}

// forget records that the claim is gone, or isn't being ended after all.
func (s *staticState) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ending, name)
}
