package launch

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

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
func (m *Launcher) serveStatic(ctx context.Context) {
	tick := m.clock.NewTicker(staticPoll)
	defer tick.Stop()
	m.recount()
	var looked time.Time
	for again := false; ; {
		select {
		case <-m.counted:
			again = true
		default:
		}
		if now := m.clock.Now(); again || now.Sub(looked) >= staticResync {
			again, looked = m.keepStatic(ctx), now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C(): // a burst of claims is counted once
		}
	}
}

// recount makes sure that static pools are counted.
func (m *Launcher) recount() {
	select {
	case m.counted <- struct{}{}:
	default:
	}
}

// keepStatic checks every static pool, and reports whether one of them has too few nodes or too many.
func (m *Launcher) keepStatic(ctx context.Context) (again bool) {
	var pools []*capacity.Pool
	for _, p := range m.claims.Pools(m.cloud.InstanceTypes) {
		if p.Replicas != nil {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return false
	}
	if m.hold() != "" || m.claims.Problem() != "" {
		return true
	}
	have := map[string]int64{}
	all := m.allClaims()
	m.mu.Lock()
	for name, c := range all {
		if !c.Deleting && !m.ending[name] {
			have[c.Pool]++
		}
	}
	m.mu.Unlock()
	for _, p := range pools {
		if have[p.Name] == *p.Replicas {
			m.shortage(p.Name, "")
			continue
		}
		again = true
		if have[p.Name] > *p.Replicas || p.Unready == "" && m.mayGrow(p.Name) {
			m.keepPool(ctx, p)
		}
	}
	return again
}

// mayGrow reports whether the pool is not in back-off after a failure.
func (m *Launcher) mayGrow(pool string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.staticLocked(pool).next.After(m.clock.Now())
}

// keepPool brings a static pool to its replicas, or closer to them.
//
//  1. Count what the API server has now, and what is about to be written: the caches of pools and claims may be behind.
//  2. Too many: choose which to end.
//  3. Too few: choose what to buy, within the limits, unless the pool is in back-off.
func (m *Launcher) keepPool(ctx context.Context, p *capacity.Pool) {
	replicas, there, written, err := m.claims.StaticClaims(ctx, p.Name)
	if err != nil {
		if ctx.Err() == nil {
			m.log(ctx).V(2).Info("Could not count the nodes of a static pool", "pool", p.Name, "err", err)
		}
		return
	}
	if !there {
		return // the deletion of the pool ends its nodes
	}
	liveClaims := m.liveClaims(p.Name, written)
	switch n := int64(len(liveClaims)) - replicas; {
	case n > 0:
		m.shrink(ctx, p, liveClaims, int(n))
	case n < 0:
		m.grow(ctx, p, -n)
	}
}

// liveClaims returns the pool's claims that exist or are about to be written, and are not being ended. written holds those that the API
// server has; true: being deleted.
func (m *Launcher) liveClaims(pool string, written map[string]bool) map[string]*capacity.Claim {
	out := map[string]*capacity.Claim{}
	all := m.allClaims()
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, gone := range written {
		if gone || m.ending[name] {
			continue
		}
		out[name] = all[name]
		if out[name] == nil {
			out[name] = &capacity.Claim{Name: name, Pool: pool, Launched: true} // another process's, created a moment ago
		}
	}
	for name, c := range m.local {
		if _, known := written[name]; c.Pool == pool && !known && !c.Deleting && !m.ending[name] {
			out[name] = c
		}
	}
	return out
}

// grow launches up to n nodes for a static pool.
func (m *Launcher) grow(ctx context.Context, p *capacity.Pool, n int64) {
	if p.Unready != "" || !m.mayGrow(p.Name) {
		return // the pool's conditions or events say why
	}
	node, why, _ := capacity.Resolve(p, nil, m.daemons(), m.cfg.Plan)
	if node == nil {
		m.recordFailure(p.Name)
		m.shortage(p.Name, why)
		return
	}
	if over := m.crowded(1); over != "" {
		m.shortage(p.Name, over)
		return
	}
	n = min(n, int64(m.headroom()))
	m.buyMu.Lock()
	defer m.buyMu.Unlock()
	workload := guard.Workload{Owner: "NodePool/" + p.Name}
	node, held := m.spending.forPool(p, node, workload)
	if held.none {
		m.shortage(p.Name, held.why)
		return
	}
	if held.probe != nil {
		n = 1
	}
	round := m.randomName("r")
	adm := m.spending.admit(int(n), m.money)
	own := *node
	own.Offers = adm.spare(p, node.Offers, []guard.Workload{workload})
	node = &own
	var claims []*capacity.Claim
	short := held.why
	for range n {
		if why, _ := adm.refuses(p, node.Offers, []guard.Workload{workload}, held.probe, false, ""); why != "" {
			short = why
			break
		}
		c := m.claimFor(node)
		c.LaunchBatch.For = capacity.ForPool
		claims = append(claims, c)
	}
	var granted []*capacity.Claim
	for i, err := range m.claims.Reserve(claims...) {
		if err != nil {
			short = err.Error()
			continue
		}
		granted = append(granted, claims[i])
	}
	if m.shortage(p.Name, short); short != "" {
		m.mu.Lock()
		m.staticLocked(p.Name).next = m.clock.Now().Add(limitPause)
		m.mu.Unlock()
	}
	if len(granted) == 0 {
		return
	}
	m.log(ctx).V(2).Info("Launching nodes of a static pool", "pool", p.Name, "nodes", len(granted), "instanceType", node.Offers[0].Type.Name)
	var batches []*batch
	for i, c := range granted {
		if i%maxBatch == 0 {
			batches = append(batches, &batch{pool: p, capacityType: node.CapacityType, offers: node.Offers, labels: node.Labels, purpose: capacity.ForPool})
		}
		w := batches[len(batches)-1]
		w.claims = append(w.claims, c)
		m.spending.buyAs(c, node.Offers, round, workload, held.probe)
		cp := *c
		m.remember(&cp)
		m.inFlight(c, template(node), daemonRoom(node.Daemons))
	}
	for _, w := range batches {
		m.wg.Go(func() { m.launch(ctx, w) })
	}
}

// headroom returns how many more claims may be in flight.
func (m *Launcher) headroom() int {
	if m.cfg.MaxInFlight <= 0 {
		return math.MaxInt32
	}
	return max(0, m.cfg.MaxInFlight-m.flying())
}

// shrink ends n nodes of a static pool. Disruption budgets don't apply; drains respect PodDisruptionBudgets.
func (m *Launcher) shrink(ctx context.Context, p *capacity.Pool, liveClaims map[string]*capacity.Claim, n int) {
	nodes, err := m.occupancy(ctx, liveClaims)
	if err != nil {
		m.log(ctx).V(2).Info("Could not read the nodes of a static pool; none is terminated", "pool", p.Name, "err", err)
		return
	}
	for _, name := range capacity.Surplus(nodes, n) {
		m.mu.Lock()
		m.ending[name] = true
		m.mu.Unlock()
		m.log(ctx).V(2).Info("Terminating a node of a static pool that has too many", "pool", p.Name, "nodeClaim", name)
		m.background(ctx, func() {
			if err := m.claims.Delete(ctx, name); err != nil {
				m.log(ctx).V(2).Info("Could not terminate a node of a static pool; trying again", "nodeClaim", name, "err", err)
				m.mu.Lock()
				delete(m.ending, name)
				m.mu.Unlock()
				m.recount()
			}
		})
	}
}

// occupancy returns what would be disrupted with each of the nodes.
func (m *Launcher) occupancy(ctx context.Context, liveClaims map[string]*capacity.Claim) ([]capacity.StaticNode, error) {
	now := m.clock.Now()
	pods := map[string][]*corev1.Pod{}
	protected := map[string]bool{}
	m.recheckMu.Lock()
	err := m.recheck.Refresh(ctx)
	if err == nil {
		m.recheck.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
			pods[n.Name], protected[n.Name] = n.Pods, o.Annotations[doNotDisrupt] == "true"
			return n
		})
	}
	m.recheckMu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("taking a snapshot of the scheduler's cache: %w", err)
	}
	out := make([]capacity.StaticNode, 0, len(liveClaims))
	for name, c := range liveClaims {
		s := capacity.StaticNode{Claim: name, CreatedAt: c.CreatedAt, Launched: c.Launched, Protected: c.DoNotDisrupt || protected[c.NodeName]}
		for _, pod := range pods[c.NodeName] {
			cost, asks := m.judge(pod, now)
			s.Protected = s.Protected || asks
			if cost > 0 {
				s.Occupied = true
				s.Cost += cost
			}
		}
		s.Cost *= c.Remaining(now)
		out = append(out, s)
	}
	return out, nil
}

// shortage records, once, an event on a static pool about why it has fewer nodes than it wants; empty: it has them, or will.
func (m *Launcher) shortage(pool, why string) {
	m.mu.Lock()
	s := m.staticLocked(pool)
	news := s.said != why
	s.said = why
	m.mu.Unlock()
	if news && why != "" {
		m.claims.TellPool(pool, corev1.EventTypeWarning, "TooFewNodes", oneLine(why))
	}
}

func (m *Launcher) staticLocked(pool string) *static {
	s := m.statics[pool]
	if s == nil {
		s = &static{}
		m.statics[pool] = s
	}
	return s
}

// recordFailure counts a failed launch for a static pool, once for all that fail together.
func (m *Launcher) recordFailure(pool string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, now := m.staticLocked(pool), m.clock.Now()
	if now.Before(s.next) {
		return
	}
	s.failed++
	s.next = now.Add(min(firstStaticRetry<<min(s.failed-1, 20), maxStaticRetry))
}

// registered resets that count when a node of the pool has registered.
func (m *Launcher) registered(c *capacity.Claim) {
	if c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || !c.Registered {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.staticLocked(c.Pool)
	s.failed, s.next = 0, time.Time{}
}

// lostStatic is called for a claim that ends. If it is a static pool's, never registered, and isn't ended by a scale-down, that counts as a
// failure.
func (m *Launcher) lostStatic(name string) {
	c := m.claim(name)
	if c == nil || c.LaunchBatch == nil || c.LaunchBatch.For != capacity.ForPool || c.Registered {
		return
	}
	m.mu.Lock()
	wanted := m.ending[name]
	m.mu.Unlock()
	if !wanted {
		m.recordFailure(c.Pool)
	}
}

// isEnding reports whether the claim is being ended because its static pool has too many.
func (m *Launcher) isEnding(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending[name]
}

// flying returns how many claims are in flight.
func (m *Launcher) flying() int {
	var flights []ledger.InFlight
	m.reservations.read(func(l *ledger.Ledger) { flights = l.InFlight() })
	n := 0
	for _, f := range flights {
		if f.Claim != "" && !f.Initialized {
			n++
		}
	}
	return n
}
