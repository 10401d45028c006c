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
	// orderPoll is how often standalone NodeClaims that are due for a retry are checked.
	orderPoll = time.Second
	// A standalone NodeClaim that could not be launched is tried again after firstOrderRetry, later each time, until liveness ends it
	// (pkg/lifecycle).
	firstOrderRetry = time.Second
	maxOrderRetry   = time.Minute
)

// reasonPaused is the reason of a claim's Launched condition while the spending guard doesn't let it be launched.
const reasonPaused = "Paused"

// order is the launch state of a standalone NodeClaim.
//
//	new -> busy -> launched (stays busy until its claim is gone)
//	        ^ \-> refused, to be tried again
//	        |        |
//	        +--------+
type order struct {
	uid   string
	busy  bool // a goroutine is launching it, or has launched it
	tries int
	next  time.Time // no retry before
}

// serveOrders launches standalone NodeClaims, each as a launch batch of its own.
func (m *Launcher) serveOrders(ctx context.Context) {
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

// ClaimChanged tells the Launcher about a NodeClaim, new or changed. It returns at once.
func (m *Launcher) ClaimChanged(c *capacity.Claim) {
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

// takeOrders starts the launches of standalone NodeClaims that are due, and reports whether any are not launched yet.
func (m *Launcher) takeOrders(ctx context.Context) (open bool) {
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

// begin reports whether it is time to launch the standalone NodeClaim, and if so marks it busy, so that no other goroutine does.
func (m *Launcher) begin(c *capacity.Claim) bool {
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

// order launches a standalone NodeClaim.
//
//  1. Refuse a claim whose spec is invalid.
//  2. If an instance is tagged with its name, use that: Karpenter may have launched it without recording it.
//  3. Delete a claim that another provisioner made for pods: they are planned for anew.
//  4. Delete a claim whose node class doesn't exist, or is not ready as another controller reports.
//  5. Find the offerings that it can be launched as.
//  6. Take it: add the finalizer, record what it counts for.
//  7. Launch it as a launch batch of its own, under the rules of any other.
func (m *Launcher) order(ctx context.Context, c *capacity.Claim) {
	if why := c.Order.Invalid; why != "" {
		m.refuseOrder(ctx, c, "Invalid", why, false)
		return
	}
	if found, err := m.limited(ctx, func() ([]capacity.Instance, error) { return m.cloud.FindClaim(ctx, c.Name) }); err != nil {
		m.refuseOrder(ctx, c, reasonOf(err), "looking for an instance that was launched for it: "+err.Error(), true)
		return
	} else if inst, ok := m.bears(c.Name, found); ok {
		m.log(ctx).V(2).Info("Adopting the instance that is tagged with the name of a claim which Dovetail did not launch", "nodeClaim", c.Name, "instance", inst.ID)
		m.inFlight(c, &capacity.Node{Labels: c.Labels, Taints: c.Taints, InFlight: true, Allocatable: c.Requests, Free: c.Requests.Clone()}, nil)
		m.finish(ctx, c, inst, c.Labels)
		return
	}
	if c.Order.Provisioned {
		m.log(ctx).V(2).Info("Deleting a claim of another provisioner that was never launched; its pods are planned for anew", "nodeClaim", c.Name)
		m.giveUp(ctx, c.Name, "NotLaunched", "created by another provisioner and never launched; its pods are planned for anew")
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

// buyOrder records a standalone NodeClaim with the spending guard, and returns it with the offerings that the guard leaves, or the reason
// why it must not be launched.
func (m *Launcher) buyOrder(c *capacity.Claim, n *capacity.PlannedNode) (*capacity.PlannedNode, string) {
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
	text := fmt.Appendln(nil, c.Pool, c.NodeClass, c.Taints, c.StartupTaints)
	for _, r := range slices.Sorted(maps.Keys(c.Requests)) {
		text = fmt.Appendln(text, r, c.Requests[r])
	}
	if c.Order != nil {
		for _, key := range slices.Sorted(maps.Keys(c.Order.Requirements)) {
			text = fmt.Appendln(text, c.Order.Requirements[key])
		}
	}
	sum := sha256.Sum256(text)
	return guard.Workload{Owner: fmt.Sprintf("NodeClaims/%s-%x", c.NodeClass, sum[:4])}
}

// inFlight adds the node of a claim that no pods are planned for to the ledger, so that pods can be planned there.
func (m *Launcher) inFlight(c *capacity.Claim, n *capacity.Node, daemons map[string]capacity.Resources) {
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.AddNode(c.Name, n, daemons, true, now) })
}

// withoutClass refuses a standalone NodeClaim whose node class can't be used, and deletes it where Karpenter does. The class may have been
// created together with the claim and not have reached its own watch yet, so the API server is asked before anything is deleted.
func (m *Launcher) withoutClass(ctx context.Context, c *capacity.Claim, why string) {
	var reason, ends string
	_, err := m.limited(ctx, func() (_ []capacity.Instance, err error) {
		reason, ends, err = m.claims.NodeClassEnds(ctx, c.NodeClass)
		return nil, err
	})
	if err != nil || reason == "" {
		m.refuseOrder(ctx, c, "NodeClassNotReady", "spec.nodeClassRef.name: "+why, true)
		return
	}
	m.log(ctx).V(2).Info("Deleting a standalone NodeClaim because its node class can't be used", "nodeClaim", c.Name, "reason", reason, "message", ends)
	if err := m.claims.RecordRefused(ctx, c.Name, reason, oneLine("spec.nodeClassRef.name: "+ends), false); err != nil {
		m.log(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
	}
	m.cancel(ctx, c.Name)
}

// resolve finds the offerings that a standalone NodeClaim can be launched as, or returns which field asks for something that can't be had;
// again: it may work later.
func (m *Launcher) resolve(c *capacity.Claim) (n *capacity.PlannedNode, reason, why string, again bool) {
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
	// Find the cause: unavailable offerings, the requests, or the requirements?
	all := *pool
	all.Types = allAvailable(pool.Types)
	if some, _, _ := capacity.Resolve(&all, c.Requests, nil, m.cfg.Plan); some != nil {
		return nil, incompatible, "all matching offerings are unavailable now: " + why, true
	}
	if some, _, _ := capacity.Resolve(&all, nil, nil, m.cfg.Plan); some != nil {
		return nil, incompatible, "spec.resources.requests: " + why, again
	}
	return nil, incompatible, "spec.requirements: " + why, again
}

// allAvailable returns the types as if all of their offerings were available.
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

// crowded returns why n more claims can't be launched now, because too many are in flight, or "".
func (m *Launcher) crowded(n int) string {
	if m.cfg.MaxInFlight <= 0 {
		return ""
	}
	flying := m.flying()
	if flying+n <= m.cfg.MaxInFlight {
		return ""
	}
	return fmt.Sprintf("%d nodes are being launched already, the limit is %d (maxClaimsInFlight)", flying, m.cfg.MaxInFlight)
}

// bears returns the instance that belongs to a claim because it is tagged with the claim's name.
func (m *Launcher) bears(name string, found []capacity.Instance) (capacity.Instance, bool) {
	if len(found) == 0 {
		return capacity.Instance{}, false
	}
	of, _ := capacity.InstanceOwnersOf(m.claims.Claims()).Assign(&capacity.LaunchBatch{}, found)
	inst, ok := of[name]
	return inst, ok
}

// refuseOrder records on a standalone NodeClaim why it isn't launched, and schedules a retry. again: the reason may go away without a
// change of the claim.
func (m *Launcher) refuseOrder(ctx context.Context, c *capacity.Claim, reason, why string, again bool) {
	m.spending.overClaim(c.Name, false) // if it was bought already, nothing was launched
	m.mu.Lock()
	o := m.orders[c.Name]
	if o == nil || o.uid != c.UID {
		o = &order{uid: c.UID}
		m.orders[c.Name] = o
	}
	o.tries++
	o.busy, o.next = false, m.clock.Now().Add(min(firstOrderRetry<<min(o.tries-1, 10), maxOrderRetry))
	m.mu.Unlock()
	m.log(ctx).V(2).Info("A standalone NodeClaim is not launched", "nodeClaim", c.Name, "reason", reason, "message", why)
	m.background(ctx, func() {
		if err := m.claims.RecordRefused(ctx, c.Name, reason, oneLine(why), again); err != nil {
			m.log(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
		}
	})
}

// limited makes a call when the semaphore of parallel calls admits it.
func (m *Launcher) limited(ctx context.Context, call func() ([]capacity.Instance, error)) ([]capacity.Instance, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case m.slots <- struct{}{}:
	}
	defer func() { <-m.slots }()
	return call()
}
