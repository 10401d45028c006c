package provisioning

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// offers gives capacity that has appeared to pods that wait for instances in flight. It belongs to the planner's goroutine.
type offers struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	viewer       *viewer
	world        World
	planner      Planner // makes plans without pools; the planner of rounds would forget the catalog of its pools if it made them
	nodes        Nodes
	committer    Committer
	triggers     *Triggers
	options      capacity.Options
}

// offer gives pods that wait for an instance capacity on nodes that can take them now, before newer demand is planned: higher priorities
// first, then in the order of their plans. A pod that gets capacity gives up its reservation; a claim that no pod needs any more and that
// was not launched is cancelled.
func (o *offers) offer(ctx context.Context) {
	if !o.triggers.room.Swap(false) {
		return
	}
	freed := o.triggers.freed.Swap(false)
	var waiting []ledger.Waiting
	o.reservations.Read(func(l ledger.Reader) { waiting = l.Releasable(freed) })
	if len(waiting) == 0 {
		return
	}
	v, err := o.viewer.view(ctx, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not read the state of the cluster; pods keep waiting for their instances")
		return
	}
	v.Pools, v.Demand = nil, demand(waiting)
	for i, n := range v.Nodes {
		if n.InFlight { // no better than the nodes in flight that the pods wait for already
			shut := *n
			shut.Closed = true
			v.Nodes[i] = &shut
		}
	}
	d := Decider{Planner: o.planner, World: o.world, Nodes: o.nodes, Pod: o.pending.Get}
	plan, err := d.Decide(ctx, &v.Scene, capacity.Options{IgnorePreferences: o.options.IgnorePreferences})
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "New capacity could not be offered to waiting pods")
		}
		return
	}
	if len(plan.Placements) == 0 {
		return
	}
	o.committer.Commit(ctx, &Proposal{Plan: plan, Existing: v.Existing, Place: func(l *ledger.Ledger, _ string, placements []capacity.Placement, _ time.Time) {
		l.Reassign(placements, freed) // the plan was made without pools, so it has no new nodes
	}})
	klog.FromContext(ctx).V(2).Info("Waiting pods get new capacity", "pods", len(plan.Placements), "waiting", len(waiting))
}
