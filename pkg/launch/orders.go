package launch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/pkg/staticpool"
)

// orderBook knows which orders (standalone NodeClaims) are being launched, and when the others are tried again. Safe for concurrent use.
type orderBook struct {
	claims   *claimCache
	spending *spending.Guard
	statics  *staticpool.State
	calls    *calls

	mu     sync.Mutex
	orders map[string]*order // by the claim's name
}

// standalone launches the NodeClaims that users have written. It has a goroutine of its own, and one for each launch.
type standalone struct {
	orders    *orderBook
	claims    *claimCache
	cloud     Cloud
	daemons   func() []*capacity.DaemonSet
	purchases *purchases
	committer *committer
	finisher  *finisher
	cleanup   *cleanup
	ownership *Ownership
	triggers  *provisioning.Triggers
	calls     *calls
	options   capacity.Options
}

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
	busy  bool      // a goroutine is launching it, or has launched it
	tries int       // launches that were refused or have failed
	next  time.Time // the earliest time of the next try
}

// serveOrders launches standalone NodeClaims, each as a launch batch of its own.
func (s *standalone) serveOrders(ctx context.Context) {
	tick := s.calls.clock.NewTicker(orderPoll)
	defer tick.Stop()
	for open := true; ; {
		if open {
			open = s.takeOrders(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.triggers.StandaloneClaims():
			open = true
		case <-tick.C():
		}
	}
}

// takeOrders starts the launches of standalone NodeClaims that are due, and reports whether any are not launched yet.
func (s *standalone) takeOrders(ctx context.Context) (open bool) {
	for _, c := range s.claims.Claims() {
		if c.Order == nil || c.Unreadable != "" || c.Deleting || c.Launched || c.ProviderID != "" {
			continue
		}
		open = true
		if s.ownership.Hold() == nil && s.claims.Problem() == nil && s.orders.begin(c) {
			s.calls.wg.Go(func() {
				if err := panics.Catch(ctx, "launch", func() error {
					s.order(ctx, c)
					return nil
				}); err != nil {
					s.orders.refuseOrder(ctx, c, "LaunchFailed", err.Error(), true)
				}
			})
		}
	}
	return open
}

// begin reports whether it is time to launch the standalone NodeClaim, and if so marks it busy, so that no other goroutine does.
func (b *orderBook) begin(c *capacity.Claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.orders[c.Name]
	if o == nil || o.uid != c.UID {
		o = &order{uid: c.UID}
		b.orders[c.Name] = o
	}
	if o.busy || b.calls.clock.Now().Before(o.next) {
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
//  6. Propose it: it is launched as a launch batch of its own, after the same checks of limits and spending as nodes for pods.
func (s *standalone) order(ctx context.Context, c *capacity.Claim) {
	if why := c.Order.Invalid; why != "" {
		s.orders.refuseOrder(ctx, c, "Invalid", why, false)
		return
	}
	if found, err := s.calls.limited(ctx, func() ([]capacity.Instance, error) { return s.cloud.FindClaim(ctx, c.Name) }); err != nil {
		s.orders.refuseOrder(ctx, c, reasonOf(err), "looking for an instance that was launched for it: "+err.Error(), true)
		return
	} else if inst, ok := s.bears(c.Name, found); ok {
		klog.FromContext(ctx).V(2).Info("Adopting the instance that is tagged with the name of a claim which Dovetail did not launch", "nodeClaim", c.Name, "instance", inst.ID)
		s.committer.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.AddNode(c.Name, &capacity.Node{Labels: c.Labels, Taints: c.Taints, InFlight: true, Allocatable: c.Requests, Free: c.Requests.Clone()}, nil, true, now)
		})
		s.finisher.finish(ctx, s.orders, c, inst, c.Labels)
		return
	}
	if c.Order.Provisioned {
		klog.FromContext(ctx).V(2).Info("Deleting a claim of another provisioner that was never launched; its pods are planned for anew", "nodeClaim", c.Name)
		s.cleanup.giveUp(ctx, c, "NotLaunched", "created by another provisioner and never launched; its pods are planned for anew")
		return
	}
	if err := s.claims.NodeClassProblem(c.NodeClass); err != nil {
		s.withoutClass(ctx, c, err.Error())
		return
	}
	n, reason, why, again := s.resolve(c)
	if n == nil {
		s.orders.refuseOrder(ctx, c, reason, why, again)
		return
	}
	own := *c
	own.Largest = n.Largest
	for _, d := range s.daemons() {
		if d.RunsOn(n.Labels, n.Pool.Taints) {
			n.Daemons = append(n.Daemons, d)
		}
	}
	plan := &capacity.Plan{Nodes: []*capacity.PlannedNode{n}}
	out := s.committer.Commit(ctx, &provisioning.Proposal{Plan: plan, Claims: map[string]*capacity.Claim{n.ID: &own}, For: capacity.ForOrder,
		Requester: s.orders, Workload: orderedAs(c)})
	if len(plan.Nodes) == 0 {
		s.orders.refuseOrder(ctx, c, reasonPaused, out.Why, false)
	}
}

// orderedAs returns the workload as which the spending guard counts a user's NodeClaim: the claim's controller, or else what the claim asks
// for. The claim's name would not do: claims that are made again and again under new names would never have failed before.
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

// withoutClass refuses a standalone NodeClaim whose node class can't be used, and deletes it where Karpenter does. The class may have been
// created together with the claim and not have reached its own watch yet, so the API server is asked before anything is deleted.
func (s *standalone) withoutClass(ctx context.Context, c *capacity.Claim, why string) {
	var reason, ends string
	_, err := s.calls.limited(ctx, func() (_ []capacity.Instance, err error) {
		reason, ends, err = s.claims.NodeClassEnds(ctx, c.NodeClass)
		return nil, err
	})
	if err != nil || reason == "" {
		s.orders.refuseOrder(ctx, c, "NodeClassNotReady", "spec.nodeClassRef.name: "+why, true)
		return
	}
	klog.FromContext(ctx).V(2).Info("Deleting a standalone NodeClaim because its node class can't be used", "nodeClaim", c.Name, "reason", reason, "message", ends)
	if err := s.claims.RecordRefused(ctx, c.Name, reason, objects.OneLine("spec.nodeClassRef.name: "+ends), false); err != nil {
		klog.FromContext(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
	}
	s.cleanup.end(ctx, c.Name, c.UID)
}

// resolve finds the offerings that a standalone NodeClaim can be launched as. If there are none, n is nil, why says which field asks for
// something that can't be had, and again reports whether a later try may succeed without a change of the claim.
func (s *standalone) resolve(c *capacity.Claim) (n *capacity.PlannedNode, reason, why string, again bool) {
	const incompatible = "NoCompatibleInstanceTypes"
	pool := &capacity.Pool{Name: c.Pool, NodeClass: c.NodeClass, Labels: c.Labels, Requirements: c.Order.Requirements,
		Taints: c.Taints, StartupTaints: c.StartupTaints}
	var err error
	if pool.Types, err = s.cloud.InstanceTypes(c.NodeClass); err != nil {
		return nil, "NodeClassNotReady", "spec.nodeClassRef.name: " + err.Error(), true
	}
	if room, over := s.purchases.Headroom(); room == 0 {
		return nil, incompatible, over, true
	}
	n, err = planner.Resolve(pool, c.Requests, nil, s.options)
	if err == nil {
		return n, "", "", false
	}
	none := &planner.Unavailable{}
	again = errors.As(err, &none) && none.Retryable
	// Find the cause: unavailable offerings, the requests, or the requirements?
	all := *pool
	all.Types = allAvailable(pool.Types)
	if _, without := planner.Resolve(&all, c.Requests, nil, s.options); without == nil {
		return nil, incompatible, "all matching offerings are unavailable now: " + err.Error(), true
	}
	if _, without := planner.Resolve(&all, nil, nil, s.options); without == nil {
		return nil, incompatible, "spec.resources.requests: " + err.Error(), again
	}
	return nil, incompatible, "spec.requirements: " + err.Error(), again
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

// bears returns the instance that belongs to a claim because it is tagged with the claim's name.
func (s *standalone) bears(name string, found []capacity.Instance) (capacity.Instance, bool) {
	if len(found) == 0 {
		return capacity.Instance{}, false
	}
	of, _ := capacity.InstanceOwnersOf(s.claims.Claims()).Assign(&capacity.LaunchBatch{}, found)
	inst, ok := of[name]
	return inst, ok
}

// Needed reports whether a standalone NodeClaim is to be launched. One that is labelled as a node of a static pool ends when the pool has
// enough nodes without it.
func (b *orderBook) Needed(claim string) (yes bool, why string) { return b.statics.Needed(claim) }

// Failed keeps a standalone NodeClaim, which belongs to the user who wrote it, and tries again, unless it already has an instance.
func (b *orderBook) Failed(ctx context.Context, c *capacity.Claim, reason, why string) (stays bool) {
	if stays = c.ProviderID == ""; stays {
		b.refuseOrder(ctx, c, reason, why, true)
	}
	return stays
}

// refuseOrder records on a standalone NodeClaim why it isn't launched, and schedules a retry. again says whether the reason may go away
// without a change of the claim.
func (b *orderBook) refuseOrder(ctx context.Context, c *capacity.Claim, reason, why string, again bool) {
	b.spending.Ended(c.Name, false) // the guard may have counted it as bought already, but nothing was launched
	b.mu.Lock()
	o := b.orders[c.Name]
	if o == nil || o.uid != c.UID {
		o = &order{uid: c.UID}
		b.orders[c.Name] = o
	}
	o.tries++
	o.busy, o.next = false, b.calls.clock.Now().Add(min(firstOrderRetry<<min(o.tries-1, 10), maxOrderRetry))
	b.mu.Unlock()
	klog.FromContext(ctx).V(2).Info("A standalone NodeClaim is not launched", "nodeClaim", c.Name, "reason", reason, "message", why)
	b.calls.background(ctx, func() {
		if err := b.claims.RecordRefused(ctx, c.Name, reason, objects.OneLine(why), again); err != nil {
			klog.FromContext(ctx).V(3).Info("Could not record why a claim is not launched", "nodeClaim", c.Name, "err", err)
		}
	})
}

// forget drops what is remembered of a claim that is gone.
func (b *orderBook) forget(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.orders, name)
}
