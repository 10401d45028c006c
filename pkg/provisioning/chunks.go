package provisioning

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/buffers"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// Chunks keeps the capacity that CapacityBuffers ask for (docs/design/buffers.md): a chunk is capacity for one pod. Plans are made on the planner's
// goroutine; the rest is safe for concurrent use.
type Chunks struct {
	offers     *offers // makes plans that buy nothing
	claims     Claims
	namespaces *Namespaces
	planning   *planning
	ownership  Ownership
	changed    func()
	waits      time.Time // since when chunks wait because pods come first; only the planner's goroutine uses it

	mu sync.Mutex
	// set: SetBuffers was called, so the buffers are known. kept: a pass over their chunks has been made since then.
	set, kept bool
	why       map[types.UID]string // why chunks of a buffer have no capacity
	spans     buffers.Spans        // since when nodes have chunks, and when they last had some
}

// mostWait is how long chunks wait at the most because pods wait for a plan.
const mostWait = 30 * time.Second

// SetBuffers sets all buffers. It returns at once; it is called again from time to time, since capacity may have changed unnoticed.
func (c *Chunks) SetBuffers(all []ledger.Buffer) {
	c.mu.Lock()
	look := len(all) > 0 || !c.kept
	c.set = true
	c.mu.Unlock()
	c.offers.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Want(all) })
	if look {
		c.offers.triggers.LookAfterChunks()
	}
}

// Report returns what has become of the buffers, and why chunks of them have no capacity.
func (c *Chunks) Report() (all []ledger.BufferState, why map[types.UID]string) {
	c.offers.reservations.Read(func(l ledger.Reader) { all = l.Buffers() })
	c.mu.Lock()
	defer c.mu.Unlock()
	return all, c.why
}

// OnChange sets a func that is called after each pass over the chunks. Call it before anything runs.
func (c *Chunks) OnChange(f func()) { c.changed = f }

// Need reports whether a node has chunks, whether that is known yet, and when it last had some.
func (c *Chunks) Need(node string) (has, known bool, last time.Time) {
	c.offers.reservations.Read(func(l ledger.Reader) { has = l.HoldsChunks(node) })
	c.mu.Lock()
	defer c.mu.Unlock()
	return has, c.kept, c.spans.Last(node)
}

// keep makes one pass, unless pods wait for a plan:
//
//  1. Find the chunks whose capacity pods have taken.
//  2. Place those without capacity on nodes that are there or in flight.
//  3. Buy nodes for what is left. If nothing was missing, free a node that is kept for chunks only.
func (c *Chunks) keep(ctx context.Context) {
	if !c.offers.triggers.chunks.Load() || c.ownership.Hold() != nil || c.ownership.TakesOver() || c.claims.Problem() != nil {
		return
	}
	var all []ledger.BufferState
	demand := false
	c.offers.reservations.Read(func(l ledger.Reader) { all, demand = l.Buffers(), l.Queued() > 0 })
	if now := c.planning.clock.Now(); demand && len(all) > 0 {
		if c.waits.IsZero() {
			c.waits = now
		}
		if now.Sub(c.waits) < mostWait {
			return
		}
	}
	c.waits = time.Time{}
	c.offers.triggers.chunks.Store(false)
	why := map[types.UID]string{}
	if len(all) > 0 {
		if err := panics.Catch(ctx, "buffers", func() error { return c.pass(ctx, why) }); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Capacity for CapacityBuffers could not be planned; it is tried again")
			}
			return
		}
	}
	c.mu.Lock()
	c.kept, c.why = c.set, why
	c.mu.Unlock()
	if c.changed != nil {
		c.changed()
	}
}

func (c *Chunks) pass(ctx context.Context, why map[types.UID]string) error {
	v, all, err := c.view(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.spans.Observe(v.chunks, v.Nodes, c.planning.clock.Now())
	free := c.spans.Free(buffers.KeptForChunks(v.Nodes, v.chunks), c.planning.clock.Now())
	c.mu.Unlock()
	demand := buffers.Demand(all)
	if len(demand) == 0 {
		for _, node := range free[:min(len(free), 3)] {
			if moved, err := c.free(ctx, v, node); moved || err != nil {
				return err
			}
		}
		return nil
	}
	if err := c.fit(ctx, v, demand, (*ledger.Ledger).PlaceChunks); err != nil {
		return err
	}
	return c.buy(ctx, why)
}

// view takes a view without demand, in which the capacity of chunks that still fit on their nodes isn't free, and drops the other chunks.
func (c *Chunks) view(ctx context.Context) (v *View, all []ledger.BufferState, err error) {
	if v, err = c.planning.viewer.view(ctx, nil); err != nil {
		return nil, nil, fmt.Errorf("taking a view of the cluster: %w", err)
	}
	v.Demand = nil
	s := v.keepChunks()
	c.offers.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.SiftChunks(s.Lost, s.Fit, now)
		all = l.Buffers()
	})
	return v, all, nil
}

// keepChunks subtracts the chunks that still fit on their nodes from the free capacity of the view.
func (v *View) keepChunks() *buffers.Sifted {
	s := buffers.Sift(v.Nodes, v.chunks)
	v.Nodes, v.Promised = s.Nodes, append(v.Promised, s.Promised...)
	return s
}

// fit places chunks on nodes that are there or in flight.
func (c *Chunks) fit(ctx context.Context, v *View, demand []capacity.Demand, place func(*ledger.Ledger, []capacity.Placement)) error {
	own := *v
	own.Pools, own.Demand, own.Nodes = nil, demand, buffers.Order(v.Nodes)
	d := Decider{Planner: c.offers.planner, World: c.offers.world, Nodes: c.offers.nodes, Pod: func(types.UID) *corev1.Pod { return nil }}
	plan, err := d.Decide(ctx, &own.Scene, capacity.Options{IgnorePreferences: c.offers.options.IgnorePreferences})
	if err != nil || len(plan.Placements) == 0 {
		return err
	}
	buffers.Own(plan)
	c.commit(ctx, &own, plan, Terms{}, place)
	return nil
}

func (c *Chunks) commit(ctx context.Context, v *View, plan *capacity.Plan, terms Terms, place func(*ledger.Ledger, []capacity.Placement)) Outcome {
	return c.offers.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Terms: terms,
		Place: func(l *ledger.Ledger, _ string, placements []capacity.Placement, _ time.Time) { place(l, placements) }})
}

// free moves the chunks of a node that is kept only for chunks to other nodes, if all of them fit there.
func (c *Chunks) free(ctx context.Context, v *View, node string) (moved bool, err error) {
	own := *v
	own.Nodes = buffers.Closing(v.Nodes, node)
	err = c.fit(ctx, &own, buffers.DemandOf(v.chunks[node]), func(l *ledger.Ledger, placements []capacity.Placement) {
		l.MoveChunks(node, placements)
		moved = !l.HoldsChunks(node)
	})
	if moved {
		klog.FromContext(ctx).V(2).Info("Capacity that is kept for CapacityBuffers fits on other nodes", "node", node, "chunks", len(v.chunks[node]))
		c.offers.triggers.LookAfterChunks() // there may be another such node
	}
	return moved, err
}

// buy launches nodes for chunks without capacity (one node, if it is to probe a breaker that stops chunks), and notes in why, why others get none.
func (c *Chunks) buy(ctx context.Context, why map[types.UID]string) error {
	v, all, err := c.view(ctx)
	if err != nil {
		return err
	}
	now := c.planning.clock.Now()
	demand := buffers.Demand(slices.DeleteFunc(all, func(b ledger.BufferState) bool {
		err := c.namespaces.MayLaunch(b.Class.Namespace)
		if err != nil {
			why[b.UID] = err.Error()
		}
		return err != nil || now.Before(b.Next)
	}))
	if len(demand) == 0 {
		return nil
	}
	terms := Terms{Moves: true, Pod: func(types.UID) *corev1.Pod { return nil }}
	plan, err := c.planning.chunkPlan(ctx, v, demand, &terms)
	if err != nil {
		return err
	}
	for uid, message := range buffers.Own(plan) {
		why[uid] = message
	}
	nodes := len(plan.Nodes)
	made := c.commit(ctx, v, plan, terms, (*ledger.Ledger).PlaceChunks)
	if made.Why != "" {
		for _, d := range demand {
			why[buffers.Of(d)] = made.Why
		}
	}
	klog.FromContext(ctx).V(2).Info("Planned capacity for CapacityBuffers", "placed", len(plan.Placements), "planned", nodes, "newNodes", len(plan.Nodes), "dollarsPerHour", plan.CostPerHour)
	return nil
}

// chunkPlan makes a verified plan for chunks. If an open breaker stops some chunks and its probe is due, the plan is one node that probes it.
func (p *planning) chunkPlan(ctx context.Context, v *View, demand []capacity.Demand, terms *Terms) (*capacity.Plan, error) {
	pools := slices.Clone(v.Pools)
	v.Nodes, v.Demand = buffers.Order(v.Nodes), slices.Clone(demand)
	plan, err := p.verified(ctx, v, terms.Pod, nil, nil)
	lift := p.spending.DueForMoves()
	if err != nil || len(plan.Refused) == 0 || len(lift) == 0 {
		return plan, err
	}
	v.Pools, v.Demand = pools, slices.Clone(demand)
	probe, err := p.verified(ctx, v, terms.Pod, nil, lift)
	if err != nil {
		return plan, nil
	}
	workloads, _ := p.spending.WantedOn(probe, terms.Pod)
	for _, n := range probe.Nodes { // the first may be for another buffer than the one that the breaker stops
		if p.probes(n, workloads[n.ID], lift) {
			buffers.Only(probe, n.ID)
			p.probe(probe, terms, lift)
			break
		}
	}
	if len(terms.Lifted) == 0 {
		return plan, nil
	}
	return probe, nil
}
