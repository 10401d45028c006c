package launch

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

const (
	// orderPoll is how often orders that are to be tried again are looked at.
	orderPoll = time.Second
	// An order that could not be launched is tried again after firstOrderRetry, later each time, until its claim's time is
	// over (pkg/lifecycle, liveness).
	firstOrderRetry = time.Second
	maxOrderRetry   = time.Minute
)

// reasonPaused is the reason of a claim's Launched condition while the spending guard holds it back.
const reasonPaused = "Paused"

// order is how far an order has come.
//
//	new -> busy -> launched (stays busy until its claim is gone)
//	        ^ \-> refused, to be tried again
//	        |        |
//	        +--------+
type order struct {
	uid   string
	busy  bool // somebody launches it, or has
	tries int
	next  time.Time // no other try before
}

// serveOrders launches the claims that nobody planned, each as a launch batch of its own.
func (m *Motor) serveOrders(ctx context.Context) {
	tick := m.clock.NewTicker(orderPoll)
	defer tick.Stop()
	for open := true; ; {
		if open {
			open = m.takeOrders(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-m.ordered:
			open = true
		case <-tick.C():
		}
	}
}

// ClaimChanged tells the motor of a NodeClaim, new or changed. It returns at once.
func (m *Motor) ClaimChanged(c *capacity.Claim) {
	m.registered(c)
	m.spending.observe(c)
	if c.Order == nil || c.Launched || c.Deleting {
		return
	}
	select {
	case m.ordered <- struct{}{}:
	default:
	}
}

// takeOrders begins with orders whose time it is, and says whether there are any that wait.
func (m *Motor) takeOrders(ctx context.Context) (open bool) {
	for _, c := range m.claims.Claims() {
		if c.Order == nil || c.Unreadable != "" || c.Deleting || c.Launched || c.ProviderID != "" {
			continue
		}
		open = true
		if m.hold() == "" && m.claims.Problem() == "" && m.begin(c) {
			m.wg.Go(func() {
				if err := panics.Catch(ctx, "launch", func() error {
					m.order(ctx, c)
					return nil
				}); err != nil {
					m.refuseOrder(ctx, c, "LaunchFailed", err.Error(), true)
				}
			})
		}
	}
	return open
}

// begin says whether it is time to launch the order, and if so that nobody else is to.
func (m *Motor) begin(c *capacity.Claim) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.orders[c.Name]
	if o == nil || o.uid != c.UID {
		o = &order{uid: c.UID}
		m.orders[c.Name] = o
	}
	if o.busy || m.clock.Now().Before(o.next) {
		return false
	}
	o.busy = true
	return true
}

// order launches a claim that nobody planned.
//
//  1. What can't mean anything is said.
//  2. An instance may bear its name already: Karpenter's, that had no time to write it down.
//  3. A claim that a provisioner of before made for pods ends: they are planned for anew.
//  4. Without a node class, or with one that another controller says is not ready, it ends.
//  5. Find what it may be bought as.
//  6. Take it: the finalizer, what it counts for.
//  7. Launch it as a launch batch of its own, under the rules of any other.
func (m *Motor) order(ctx context.Context, c *capacity.Claim) {
	if why := c.Order.Invalid; why != "" {
		m.refuseOrder(ctx, c, "Invalid", why, false)
		return
	}
	if found, err := m.limited(ctx, func() ([]capacity.Instance, error) { return m.cloud.FindClaim(ctx, c.Name) }); err != nil {
		m.refuseOrder(ctx, c, reasonOf(err), "looking for an instance that was launched for it: "+err.Error(), true)
		return
	} else if inst, ok := m.bears(c.Name, found); ok {
		m.log(ctx).V(2).Info("An instance bears the name of a claim that was not launched by us; it is the claim's", "nodeClaim", c.Name, "instance", inst.ID)
		m.inFlight(c, &capacity.Node{Labels: c.Labels, Taints: c.Taints, InFlight: true, Allocatable: c.Requests, Free: c.Requests.Clone()}, nil)
		m.finish(ctx, c, inst, c.Labels)
		return
	}
	if c.Order.Provisioned {
		m.log(ctx).V(2).Info("Deleting a claim of another provisioner that was never launched; its pods are planned for anew", "nodeClaim", c.Name)
		m.giveUp(ctx, c.Name, "NotLaunched", "made by another provisioner, which has gone before it was launched; its pods are planned for anew")
		return
	}
	if why := m.claims.NodeClassProblem(c.NodeClass); why != "" {
		m.withoutClass(ctx, c, why)
		return
	}
	n, reason, why, again := m.resolve(c)
	if n == nil {
		m.refuseOrder(ctx, c, reason, why, again)
		return
	}
	own := *c
	own.Largest = n.Largest
	n, why = m.buyOrder(&own, n)
	if why != "" {
		m.refuseOrder(ctx, c, reasonPaused, why, false)
		return
	}
	if _, err := m.limited(ctx, func() ([]capacity.Instance, error) { return nil, m.claims.Take(ctx, &own) }); err != nil {
		m.refuseOrder(ctx, c, "ClaimNotWritten", err.Error(), true)
		return
	}
	var daemons []*capacity.DaemonSet
	for _, d := range m.daemons() {
		if d.RunsOn(n.Labels, n.Pool.Taints) {
			daemons = append(daemons, d)
		}
	}
	m.inFlight(&own, template(n), daemonRoom(daemons))
	w := &batch{pool: n.Pool, capacityType: n.CapacityType, offers: n.Offers, labels: n.Labels, claims: []*capacity.Claim{&own}, purpose: capacity.ForOrder}
	if c.LaunchBatch != nil {
		w.attempt, w.first = c.LaunchBatch.Attempt, c.LaunchBatch.Attempt
	}
	m.carry(ctx, w)
}

// buyOrder has the spending guard take an order down as bought, with the offers that it leaves, or says why it must not be.
func (m *Motor) buyOrder(c *capacity.Claim, n *capacity.PlannedNode) (*capacity.PlannedNode, string) {
	m.buyMu.Lock()
	defer m.buyMu.Unlock()
	workload := orderedAs(c)
	n, held := m.spending.forPool(n.Pool, n, workload)
	if held.none {
		return n, held.why
	}
	check := m.spending.admit(1, m.money)
	own := *n
	own.Offers = check.spare(n.Pool, n.Offers, []guard.Workload{workload})
	n = &own
	if why, _ := check.refuses(n.Pool, n.Offers, []guard.Workload{workload}, held.probe, false, ""); why != "" {
		return n, why
	}
	m.spending.buyAs(c, n.Offers, m.randomName("r"), workload, held.probe)
	return n, ""
}

// orderedAs is what the spending guard counts a NodeClaim of a user by: its controller, or what it asks for. By its name whoever makes the
// same again under another one would be a stranger each time.
func orderedAs(c *capacity.Claim) guard.Workload {
	if c.Order != nil && c.Order.Owner != "" {
		return guard.Workload{Owner: c.Order.Owner}
	}
	h := sha256.New()
	fmt.Fprintln(h, c.Pool, c.NodeClass, c.Taints, c.StartupTaints)
	for _, r := range slices.Sorted(maps.Keys(c.Requests)) {
		fmt.Fprintln(h, r, c.Requests[r])
	}
	if c.Order != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Order.Requirements)) {
			fmt.Fprintln(h, c.Order.Requirements[key])
		}
	}
	return guard.Workload{Owner: fmt.Sprintf("NodeClaims/%s-%x", c.NodeClass, h.Sum(nil)[:4])}
}

// inFlight tells the ledger of a claim's node that nobody's pods are planned for, for others to be planned there.
func (m *Motor) inFlight(c *capacity.Claim, n *capacity.Node, daemons map[string]capacity.Resources) {
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.AddNode(c.Name, n, daemons, true, now) })
}

// withoutClass refuses an order whose node class can't be used, and ends it where Karpenter does. The class may have been written together
// with the claim and not have come by its own watch yet, so that the API server is asked before anything ends.
func (m *Motor) withoutClass(ctx context.Context, c *capacity.Claim, why string) {
	var reason, ends string
	_, err := m.limited(ctx, func() (_ []capacity.Instance, err error) {
		reason, ends, err = m.claims.NodeClassEnds(ctx, c.NodeClass)
		return nil, err
	})
	if err != nil || reason == "" {
		m.refuseOrder(ctx, c, "NodeClassNotReady", "spec.nodeClassRef.name: "+why, true)
		return
	}
	m.log(ctx).V(2).Info("Deleting a claim that was made by hand, for its node class can't be used", "nodeClaim", c.Name, "reason", reason, "message", ends)
	if err := m.claims.RecordRefused(ctx, c.Name, reason, oneLine("spec.nodeClassRef.name: "+ends), false); err != nil {
		m.log(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
	}
	m.cancel(ctx, c.Name)
}

// resolve finds what an order may be bought as, or says in which field what is asked for can't be had; again: it may be later.
func (m *Motor) resolve(c *capacity.Claim) (n *capacity.PlannedNode, reason, why string, again bool) {
	const incompatible = "NoCompatibleInstanceTypes"
	pool := &capacity.Pool{Name: c.Pool, NodeClass: c.NodeClass, Labels: c.Labels, Requirements: c.Order.Requirements,
		Taints: c.Taints, StartupTaints: c.StartupTaints}
	if pool.Types, pool.Unready = m.cloud.InstanceTypes(c.NodeClass); pool.Unready != "" {
		return nil, "NodeClassNotReady", "spec.nodeClassRef.name: " + pool.Unready, true
	}
	if over := m.crowded(1); over != "" {
		return nil, incompatible, over, true
	}
	n, why, again = capacity.Resolve(pool, c.Requests, nil, m.cfg.Plan)
	if n != nil {
		return n, "", "", false
	}
	// Whose fault is it: that of what can't be had now, of what is asked, or of where it may come from?
	all := *pool
	all.Types = allAvailable(pool.Types)
	if some, _, _ := capacity.Resolve(&all, c.Requests, nil, m.cfg.Plan); some != nil {
		return nil, incompatible, "what could be bought for it can't be had now: " + why, true
	}
	if some, _, _ := capacity.Resolve(&all, nil, nil, m.cfg.Plan); some != nil {
		return nil, incompatible, "spec.resources.requests: " + why, again
	}
	return nil, incompatible, "spec.requirements: " + why, again
}

// allAvailable is the types as if all of their offers could be had.
func allAvailable(types []*capacity.InstanceType) []*capacity.InstanceType {
	out := make([]*capacity.InstanceType, 0, len(types))
	for _, t := range types {
		own := *t
		own.Offers = slices.Clone(t.Offers)
		for i := range own.Offers {
			o := &own.Offers[i]
			o.Available, o.Remaining = true, max(o.Remaining, 1)
		}
		out = append(out, &own)
	}
	return out
}

// crowded is why n more claims can't be launched now, because too many are in flight, or "".
func (m *Motor) crowded(n int) string {
	if m.cfg.MaxInFlight <= 0 {
		return ""
	}
	flying := m.flying()
	if flying+n <= m.cfg.MaxInFlight {
		return ""
	}
	return fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", flying, m.cfg.MaxInFlight)
}

// bears is the instance that falls to a claim because it bears its name.
func (m *Motor) bears(name string, found []capacity.Instance) (capacity.Instance, bool) {
	if len(found) == 0 {
		return capacity.Instance{}, false
	}
	of, _ := capacity.InstanceOwnersOf(m.claims.Claims()).Assign(&capacity.LaunchBatch{}, found)
	inst, ok := of[name]
	return inst, ok
}

// refuseOrder says on an order why it isn't launched. It is tried again later, unless its claim is what is wrong.
func (m *Motor) refuseOrder(ctx context.Context, c *capacity.Claim, reason, why string, again bool) {
	m.spending.overClaim(c.Name, false) // if it was bought already, nothing came of it
	m.mu.Lock()
	o := m.orders[c.Name]
	if o == nil || o.uid != c.UID {
		o = &order{uid: c.UID}
		m.orders[c.Name] = o
	}
	o.tries++
	o.busy, o.next = false, m.clock.Now().Add(min(firstOrderRetry<<min(o.tries-1, 10), maxOrderRetry))
	m.mu.Unlock()
	m.log(ctx).V(2).Info("A claim that was made by hand is not launched", "nodeClaim", c.Name, "reason", reason, "message", why)
	m.background(ctx, func() {
		if err := m.claims.RecordRefused(ctx, c.Name, reason, oneLine(why), again); err != nil {
			m.log(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
		}
	})
}

// limited makes a call when its turn has come.
func (m *Motor) limited(ctx context.Context, call func() ([]capacity.Instance, error)) ([]capacity.Instance, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.slots <- struct{}{}:
	}
	defer func() { <-m.slots }()
	return call()
}
