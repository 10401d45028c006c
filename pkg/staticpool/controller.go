package staticpool

import (
	"context"
	"fmt"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// Controller keeps static pools at their replicas. It has a goroutine of its own.
type Controller struct {
	state      *State
	claims     Claims
	pools      func() []*capacity.Pool
	daemons    func() []*capacity.DaemonSet
	occupancy  *occupancy
	spare      func(pool string) (wanted, known bool)
	headroom   func() (n int, why string)
	committer  provisioning.Committer
	paused     func() bool
	background func(context.Context, func())
	triggers   *provisioning.Triggers
	clock      clock.WithTicker
	options    capacity.Options
}

// Parts are the neighbours of a Controller.
type Parts struct {
	State   *State
	Claims  Claims
	Pools   func() []*capacity.Pool // all pools, from memory
	Daemons func() []*capacity.DaemonSet
	Nodes   Nodes
	Judge   Judge
	// Spare reports whether a pool is to have one node more than its replicas, which takes the place of another, and whether that is known yet:
	// as long as it isn't, no node more is launched and none is ended.
	Spare func(pool string) (wanted, known bool)
	// Headroom returns how many more claims may be in flight, and why there may be no more than that.
	Headroom  func() (n int, why string)
	Committer provisioning.Committer
	// Paused reports whether nothing may be launched or ended now, because another controller leads or the claims can't be read.
	Paused func() bool
	// Background runs a func in a goroutine of its own, beside launches.
	Background func(context.Context, func())
	Triggers   *provisioning.Triggers
	Clock      clock.WithTicker
	Options    capacity.Options
}

// New returns a Controller that does nothing until Serve.
func New(p Parts) *Controller {
	return &Controller{state: p.State, claims: p.Claims, pools: p.Pools, daemons: p.Daemons, occupancy: &occupancy{p.Nodes, p.Judge, p.Clock}, spare: p.Spare,
		headroom: p.Headroom, committer: p.Committer, paused: p.Paused, background: p.Background, triggers: p.Triggers, clock: p.Clock, options: p.Options}
}

const (
	// Static pools are counted at most every poll and at least every resync.
	poll   = time.Second
	resync = time.Minute
	// limitPause is how long a pool that its limits keep from growing waits.
	limitPause = 10 * time.Second
)

// Serve keeps static pools at their replicas.
func (s *Controller) Serve(ctx context.Context) {
	tick := s.clock.NewTicker(poll)
	defer tick.Stop()
	s.triggers.Recount()
	var looked time.Time
	for again := false; ; {
		select {
		case <-s.triggers.StaticPools():
			again = true
		default:
		}
		if now := s.clock.Now(); again || now.Sub(looked) >= resync {
			again, looked = s.Keep(ctx), now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C(): // a burst of claims is counted once
		}
	}
}

// Keep checks every static pool, and reports whether one of them has too few nodes or too many.
func (s *Controller) Keep(ctx context.Context) (again bool) {
	var pools []*capacity.Pool
	names := map[string]bool{}
	for _, p := range s.pools() {
		if p.Replicas != nil {
			pools, names[p.Name] = append(pools, p), true
		}
	}
	s.state.prune(names)
	if len(pools) == 0 {
		return false
	}
	if s.paused() {
		return true
	}
	have := map[string]int64{}
	ending := s.state.allEnding()
	for name, c := range s.claims.All() {
		if !c.Deleting && !ending[name] {
			have[c.Pool]++
		}
	}
	for _, p := range pools {
		want := *p.Replicas
		spare, known := s.spare(p.Name)
		if spare {
			want++
		}
		n := count{have[p.Name], want}
		answered := s.state.answered(p.Name, n)
		if n.have == want {
			s.state.unanswered(p.Name)
		}
		if n.have == want || !known && n.have > want || answered {
			s.state.shortage(p.Name, "")
			again = again || answered
			continue
		}
		again = true
		switch {
		case n.have < want && (p.Unready != "" || !s.mayGrow(p.Name)):
		case s.keepPool(ctx, p):
			s.state.answer(p.Name, n)
		default:
			s.state.unanswered(p.Name)
		}
	}
	return again
}

// mayGrow reports whether the pool is not in back-off after a failure.
func (s *Controller) mayGrow(pool string) bool {
	return !s.state.Backoff(pool).Until.After(s.clock.Now())
}

// keepPool brings a static pool to its replicas, or closer to them. It reports whether it has them already, by what the API server says.
//
//  1. Count what the API server has now, and what is about to be written: the caches of pools and claims may be behind.
//  2. Too many: choose which to end.
//  3. Too few: choose what to buy, within the limits, unless the pool is in back-off.
func (s *Controller) keepPool(ctx context.Context, p *capacity.Pool) (kept bool) {
	ending := s.state.allEnding() // read before the claims: a claim that ends and is forgotten in between would count as live otherwise
	replicas, there, written, err := s.claims.StaticClaims(ctx, p.Name)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not count the nodes of a static pool", "pool", p.Name, "err", err)
		}
		return false
	}
	if !there {
		return false // the deletion of the pool ends its nodes
	}
	liveClaims := s.liveClaims(p.Name, written, ending)
	spare, known := s.spare(p.Name)
	switch n := int64(len(liveClaims)) - replicas; {
	case n > 1 && spare:
		s.shrink(ctx, p, liveClaims, int(n-1))
	case n > 0 && !spare && known:
		s.shrink(ctx, p, liveClaims, int(n))
	case n < 0:
		s.grow(ctx, p, -n, false)
	case n == 0 && spare:
		s.grow(ctx, p, 1, true)
	default:
		return known || n == 0
	}
	return false
}

// liveClaims returns the pool's claims that exist or are about to be written, and are not being ended. written holds those that the API
// server has; true: being deleted.
func (s *Controller) liveClaims(pool string, written, ending map[string]bool) map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	all := s.claims.All()
	for name, gone := range written {
		if gone || ending[name] {
			continue
		}
		out[name] = all[name]
		if out[name] == nil {
			out[name] = &capacity.Claim{Name: name, Pool: pool, Launched: true} // another process's, created a moment ago
		}
	}
	for name, c := range s.claims.Known() {
		if _, there := written[name]; c.Pool == pool && !there && !c.Deleting && !ending[name] {
			out[name] = c
		}
	}
	return out
}

// grow launches up to n nodes for a static pool. spare: it is one that takes the place of another.
func (s *Controller) grow(ctx context.Context, p *capacity.Pool, n int64, spare bool) {
	if p.Unready != "" || !s.mayGrow(p.Name) {
		return // the pool's conditions or events say why
	}
	node, err := planner.Resolve(p, nil, s.daemons(), s.options)
	if err != nil {
		s.state.recordFailure(p.Name)
		s.state.shortage(p.Name, err.Error())
		return
	}
	room, over := s.headroom()
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
	out := s.committer.Commit(ctx, &provisioning.Proposal{Plan: plan, For: capacity.ForPool, Requester: s.state, Terms: provisioning.Terms{Spare: spare},
		Workload: guard.Workload{Owner: "NodePool/" + p.Name}})
	if s.state.shortage(p.Name, out.Why); out.Why != "" && !out.Paused {
		s.state.waitFor(p.Name, limitPause)
	}
	if len(plan.Nodes) > 0 {
		klog.FromContext(ctx).V(2).Info("Launching nodes of a static pool", "pool", p.Name, "nodes", len(plan.Nodes), "instanceType", plan.Nodes[0].Offers[0].Type.Name)
	}
}

// shrink ends n nodes of a static pool. Disruption budgets don't apply; drains respect PodDisruptionBudgets.
func (s *Controller) shrink(ctx context.Context, p *capacity.Pool, liveClaims map[string]*capacity.Claim, n int) {
	nodes, err := s.occupancy.of(ctx, liveClaims)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not read the nodes of a static pool; none is terminated", "pool", p.Name, "err", err)
		return
	}
	for _, name := range capacity.Surplus(nodes, n) {
		s.state.End(name)
		klog.FromContext(ctx).V(2).Info("Terminating a node of a static pool that has too many", "pool", p.Name, "nodeClaim", name)
		uid := ""
		if c := liveClaims[name]; c != nil {
			uid = c.UID
		}
		s.background(ctx, func() {
			if err := s.claims.Delete(ctx, name, uid); err != nil {
				klog.FromContext(ctx).V(2).Info("Could not terminate a node of a static pool; trying again", "nodeClaim", name, "err", err)
				s.state.Forget(name)
				s.triggers.Recount()
			}
		})
	}
}
